#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: acceptance_storage
short_description: (internal) Measure how fast a file system reads large files
description:
  - Reads the largest file below a directory with several threads, and bypasses the page cache if the file system
    allows it. If there is no file of 256 MiB, it creates one and removes it again.
  - A file system that cannot be measured is not an error of the module. C(problem) says why.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  path:
    description: The directory.
    type: path
    required: true
  optional:
    description: Whether the directory may be missing. Nothing is read then.
    type: bool
    default: false
  seconds:
    description: How long to read at most.
    type: float
    default: 10
  size:
    description: Size in bytes of the file to create if there is none.
    type: int
    default: 4294967296
"""

EXAMPLES = "\n# playbooks/accept.yml\n"

import os
from dataclasses import asdict

from ..module_utils.acceptance.signals import exit_on_signals
from ..module_utils.acceptance.storage_host import StorageError, measure_reads
from ..module_utils.common.door import start_module

NO_DIRECTORY = "{path} is not a directory on this host; name another one with accept_storage_dir"


def main() -> None:
    module = start_module(DOCUMENTATION)
    options = module.params
    if module.check_mode:
        module.exit_json(changed=False, problem="", not_tried="check mode reads nothing")
    if options["optional"] and not os.path.isdir(options["path"]):
        module.exit_json(changed=False, problem="", not_tried=NO_DIRECTORY.format(**options))
    exit_on_signals()
    try:
        reading = measure_reads(options["path"], options["seconds"], options["size"])
    except StorageError as exc:
        module.exit_json(changed=False, problem=str(exc))
    module.exit_json(changed=False, problem="", **asdict(reading))


if __name__ == "__main__":
    main()
