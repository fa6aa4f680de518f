#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime_state
short_description: (internal) Inspect the container engines of a host
description:
  - Reads the container engines, their packages, package sources, keys and files, and the drivers that are loaded.
  - Decides nothing and changes nothing. Credentials in files stay on the host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  packager:
    description: The package format of this system.
    type: str
    choices: [deb, rpm]
    required: true
"""

EXAMPLES = "\n# plugins/action/container_runtime.py\n"

from typing import Any

from ..module_utils.common.door import start_module
from ..module_utils.container_runtime.host import read_host


def main() -> None:
    module = start_module(DOCUMENTATION)

    def run(words: Any) -> tuple[int, str, str]:
        # Package managers are only queried; a missing program is not an error here.
        result: tuple[int, str, str] = module.run_command(list(words), handle_exceptions=True)
        return result

    module.exit_json(changed=False, host=read_host(module.params["packager"], run, module.get_bin_path).as_dict())


if __name__ == "__main__":
    main()
