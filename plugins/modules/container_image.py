#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: container_image
short_description: (internal) Pull or load a container image into a host's store
description:
  - Pulls an image with docker or podman, or loads it from an archive, unless the store has it.
  - Uses the engine's own command and configuration. The engine's files in C(/etc/docker) or C(/etc/containers) define
    how a registry is reached (plain HTTP, the site's certificate authority, mirrors, proxies).
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  engine:
    description: The engine, by name or by the path of its command.
    type: str
    required: true
  image:
    description: Reference of the image, C(name:tag) or C(name@sha256:...). The default registry is C(docker.io).
    type: str
    required: true
  archive:
    description:
      - File on the host to load the image from, as C(docker save) or C(podman save) writes it, instead of pulling it.
      - An archive in docker's own format holds no registry digest. An image named by a digest can only be loaded from
        an OCI archive, and only into a store that keeps digests.
    type: path
  pull:
    description: V(missing) does nothing if the store has the image. V(always) asks the registry, or loads the archive,
      every time, because a tag may refer to another image by now.
    type: str
    choices: [missing, always]
    default: missing
  auth_file:
    description: File on the host with the login for the registry, in the format of docker's C(config.json).
    type: path
  check_registry:
    description: In check mode, ask the registry whether it has an image that would be pulled.
    type: bool
    default: true
"""

EXAMPLES = "\n# roles/vllm/tasks/host.yml\n"


from ..module_utils.common.door import start_module
from ..module_utils.containers.engine import ContainerError
from ..module_utils.containers.image_names import reference
from ..module_utils.containers.store_host import Store, ensure_image


def main() -> None:
    module = start_module(DOCUMENTATION)
    try:
        result = ensure_image(module, Store(module))
    except (ContainerError, OSError) as exc:
        module.fail_json(msg=str(exc), image=reference(module.params["image"]))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
