#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mirror_wheels
short_description: (internal) Fetch exactly the wheels of a lock into a directory that can be carried
description:
  - Downloads with pip the wheels of a lock that C(ROOT/wheels) lacks, for the lock's Python and machine. pip uses its
    own configuration (index, find-links, CA, proxy).
  - Every file is checked against the lock before it gets its name. The next run continues an interrupted
    download. Nothing is removed.
requirements:
  - pip
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  root:
    description: The directory that is carried.
    type: path
    required: true
  locks:
    description: Paths of locks, as C(tools/vllm/lock_requirements.py) makes them. A comment in each names its Python
      and machine, such as C(cp311-x86_64).
    type: list
    elements: path
    required: true
  verify:
    description:
      - V(stamp) trusts a complete lock while the size and time of its files are unchanged.
      - V(full) reads every file.
    type: str
    choices: [stamp, full]
    default: stamp
"""

EXAMPLES = "\n# playbooks/mirror.yml\n"

import os
from typing import Any

from ..module_utils.common.door import start_module
from ..module_utils.wheels.venv import VenvError
from ..module_utils.wheels.wheelhouse_host import Wheelhouse, fill_wheelhouse, inspect_wheelhouse


def main() -> None:
    module = start_module(DOCUMENTATION)
    # Readable for all, because a web server serves the directory.
    os.umask(0o022)
    holds, fetched = {}, []
    for lock in module.params["locks"]:
        try:
            house = inspect_wheelhouse(lock, f"{module.params['root']}/wheels", module.params["verify"] == "full")
            fetched += [pin.name for pin in house.missing]
            full = house if module.check_mode else fill_wheelhouse(house, module.log)
        except (VenvError, OSError) as exc:
            module.fail_json(msg=f"{lock}: {exc}")
        if full.files:
            holds[full.name] = files_of(full)
    module.exit_json(changed=bool(fetched), fetched=fetched, holds=holds)


def files_of(house: Wheelhouse) -> dict[str, Any]:
    """Return the wheels of a lock by their paths below the carried directory."""
    return {f"wheels/{file.name}": {"size": file.size, "sha256": file.sha256} for file in house.files.values()}


if __name__ == "__main__":
    main()
