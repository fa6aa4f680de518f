#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: role_options
short_description: Find misspelt options of a role
version_added: 0.1.0
description:
  - Ansible ignores a variable that a role's argument spec does not name, so a misspelt one has no effect. This module
    checks all variables of the host that begin with the role's name.
  - A variable whose name is close to an option of the role is an error. Any other unknown variable is a warning.
  - Runs on the controller and contacts no host.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  role:
    description:
      - Name of a role of this collection.
    type: str
    required: true
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Check for misspelt options
  baremetal.inference.role_options:
    role: vllm
"""

RETURN = r"""
unknown:
  description: Variables that begin with the role's name but are not its options.
  type: list
  elements: str
  returned: success
"""
