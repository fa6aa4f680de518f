#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: mirror_images
short_description: (internal) Copy container images into layouts that can be carried
description:
  - Copies each image, every platform of it and byte for byte, into the OCI layout C(ROOT/images/REPOSITORY), from where
    the module M(baremetal.inference.registry_images) pushes it on the mirror.
  - A layout that has the image under its tag with the digest of its registry, with all blobs, stays unchanged. Existing
    blobs are not fetched again, so the next run continues an interrupted copy. Nothing is removed.
  - The registry is not asked for an existing image that is named by its digest. An existing image whose registry does
    not answer is kept, with a warning.
  - In check mode, registries are asked for manifests only.
requirements:
  - skopeo, where an image is missing or named by a tag
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  root:
    description: The directory that is carried.
    type: path
    required: true
  images:
    description: The images, as C(REPOSITORY:TAG), with registry or without, or by digest.
    type: list
    elements: str
    required: true
  sources:
    description: Where skopeo finds images that are not in the registry of their name, by image, such as
      V(oci:/srv/built/image:1.0) or V(docker://registry.example.com/image:1.0).
    type: dict
    default: {}
  verify:
    description: V(sizes) compares the sizes of blobs, V(full) reads every blob.
    type: str
    choices: [sizes, full]
    default: sizes
"""

EXAMPLES = "\n# playbooks/mirror.yml\n"

import os

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.containers.copy_host import run


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    # Readable for all, because a web server serves the directory.
    os.umask(0o022)
    return run(module)


if __name__ == "__main__":
    main()
