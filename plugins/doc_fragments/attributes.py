# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

# {0} and {1} are what a module supports of check mode and of diff mode; empty where the module documents it itself.
COMMON = r"""
options: {{}}
author:
  - the baremetal.inference authors (@baremetal-inference)
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change without changing anything.{0}
  diff_mode:
    description: Returns details of what has changed or would change when in diff mode.{1}
"""
FULLY, NOT = "\n    support: full", "\n    support: none"


class ModuleDocFragment:
    """What every module of the collection documents: its authors, check mode and diff mode."""

    DOCUMENTATION = COMMON.format("", "")
    FULL = COMMON.format(FULLY, FULLY)
    NO_DIFF = COMMON.format(FULLY, NOT)
