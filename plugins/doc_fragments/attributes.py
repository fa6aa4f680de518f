# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What every module of the collection documents about check mode and diff mode."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change without changing anything.
  diff_mode:
    description: Returns details of what has changed or would change when in diff mode.
"""

    FULL = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change without changing anything.
    support: full
  diff_mode:
    description: Returns details of what has changed or would change when in diff mode.
    support: full
"""

    NO_DIFF = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change without changing anything.
    support: full
  diff_mode:
    description: Returns details of what has changed or would change when in diff mode.
    support: none
"""
