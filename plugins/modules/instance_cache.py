#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: instance_cache
short_description: (internal) Keep what a vLLM instance has compiled as an archive, and give it to an equal host
description:
  - An archive is named after all that compiled code depends on, so that only an equal instance of an equal host uses
    it.
  - The cache of an image that serves as root gets none, and none is made of it.
  - With O(state=seeded), an archive that cannot be used is a warning, and nothing remains of it.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  plan:
    description: The instance's plan as M(baremetal.inference.serve_plan) returns it.
    type: dict
    required: true
  state:
    description:
      - V(packed) makes the archive C(NAME.tar.gz) in O(work_dir). The instance must run in its last good state. It
        returns what M(baremetal.inference.cache_archive) needs for the key.
      - V(seeded) fetches the archive that fits from O(source), if the instance is stopped and has compiled nothing yet.
    type: str
    choices: [packed, seeded]
    required: true
  manifests:
    description: The texts of the manifests that the controller trusts.
    type: list
    elements: str
    default: []
  source:
    description: Address or absolute path of the directory with the archives.
    type: str
    default: ""
  ca_file:
    description: CA bundle on the host for O(source).
    type: str
    default: ""
  engine:
    description: Path of the command of the container engine.
    type: str
    default: ""
  owner:
    description: User that owns the cache.
    type: str
    required: true
  reader:
    description: Number of the user who fetches an archive that was V(packed); nobody else but root can read it.
    type: int
    default: 0
  cache_dir:
    description: Directory of the caches of all instances.
    type: path
    default: /var/cache/vllm
  work_dir:
    description: Directory for archives on the host.
    type: path
    default: /var/lib/baremetal-inference/caches
"""

EXAMPLES = "\n# roles/vllm/tasks/caches.yml\n"

import platform

from ..module_utils.common.door import start_module
from ..module_utils.slots.caches import CacheError
from ..module_utils.slots.caches_host import Cache
from ..module_utils.slots.state import SlotError


def main() -> None:
    module = start_module(DOCUMENTATION)
    packed, where = module.params["state"] == "packed", f"{platform.node()}: {module.params['plan']['instance']}"
    try:
        cache = Cache(module, module.params["plan"])
        result = cache.pack() if packed else cache.seed()
        if packed and result["why"]:
            module.warn(f"{where}: no archive was made: {result['why']}")
    except (CacheError, SlotError, OSError, KeyError) as exc:
        if packed:
            module.fail_json(msg=f"{where}: {exc}")
        # The instance compiles everything itself.
        module.warn(f"{where}: its caches were not seeded: {exc}")
        result = {"changed": False, "key": "", "seeded": False, "why": str(exc)}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
