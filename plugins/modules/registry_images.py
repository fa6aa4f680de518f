#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_images
short_description: (internal) Push container images from layouts into a registry
description:
  - Finds the OCI image layouts below O(root), as C(skopeo copy ... oci:ROOT/REPOSITORY:TAG) writes them, and pushes
    each into the registry as C(REPOSITORY:TAG). Hidden directories are ignored, and links are not followed.
  - Skips an image whose digest the registry already has under that tag. Digests never change on the way.
  - Nothing is removed from the registry.
  - Every index is read before the first image is pushed.
  - In check mode an unreachable registry counts as empty, because the same run may be about to create it.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  root:
    description: Directory that holds the layouts. A missing directory counts as empty.
    type: path
    required: true
  socket:
    description: Unix socket of the registry, which requires no login.
    type: path
    required: true
"""

EXAMPLES = "\n# roles/mirror/tasks/run.yml\n"

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.containers.oci_index import Image, OciError, listing
from ..module_utils.containers.push_host import find_images, push
from ..module_utils.containers.registry_socket_host import Registry

# A registry that has just been started may not listen yet.
START_SECONDS = 15


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    registry = Registry(module.params["socket"])
    images = find_images(module.params["root"])
    present = ask_all(images, registry, module.check_mode)
    missing = [image for image in images if present[image.name] != image.digest]
    if not module.check_mode:
        for image in missing:
            push(image, registry)
    return {
        "changed": bool(missing),
        "images": [{"name": image.name, "digest": image.digest} for image in images],
        "pushed": [image.name for image in missing],
        "diff": {
            "before_header": registry.path,
            "after_header": registry.path,
            "before": listing(images, present),
            "after": listing(images, {image.name: image.digest for image in images}),
        },
    }


def ask_all(images: list[Image], registry: Registry, check_mode: bool) -> dict[str, str | None]:
    """Return the digest that a registry has for each image."""
    if images and not registry.answers(0 if check_mode else START_SECONDS):
        if check_mode:
            return {image.name: None for image in images}
        raise OciError(f"the registry at {registry.path} does not answer; see `journalctl -u docker-registry` there")
    return {image.name: registry.digest_of(image) for image in images}


if __name__ == "__main__":
    main()
