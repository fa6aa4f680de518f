# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """What every module of the collection documents: its authors, check mode and diff mode."""

    # A module with this variant documents what it supports itself.
    DOCUMENTATION = r"""
options: {}
author:
  - the baremetal.inference authors (@baremetal-inference)
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would change without changing anything.
  diff_mode:
    description: Returns details of what has changed or would change when in diff mode.
"""
    # Sanity tests read literals only.
    FULL = r"""
options: {}
author:
  - the baremetal.inference authors (@baremetal-inference)
attributes:
  check_mode:
    support: full
    description: Can run in C(check_mode) and return what it would change without changing anything.
  diff_mode:
    support: full
    description: Returns details of what has changed or would change when in diff mode.
"""

    NO_DIFF = r"""
options: {}
author:
  - the baremetal.inference authors (@baremetal-inference)
attributes:
  check_mode:
    support: full
    description: Can run in C(check_mode) and return what it would change without changing anything.
  diff_mode:
    support: none
    description: Returns details of what has changed or would change when in diff mode.
"""

    UNSUPPORTED = r"""
options: {}
author:
  - the baremetal.inference authors (@baremetal-inference)
attributes:
  check_mode:
    support: none
    description: Can run in C(check_mode) and return what it would change without changing anything.
  diff_mode:
    support: none
    description: Returns details of what has changed or would change when in diff mode.
"""
