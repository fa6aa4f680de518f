# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: state_dir
short_description: (internal) A directory on the controller for files that must outlive a run
description:
  - Internal to the collection's roles and playbooks.
  - If the environment variable E(BAREMETAL_STATE_DIR) is set, an absolute path, the directory is below it. Otherwise it
    is where the collection writes without that variable.
options:
  _terms:
    description: Names of directories.
    type: list
    elements: str
    choices:
      - rollouts
      - discovery
      - gateway-ca
      - gateway-secret
      - accept-results
      - bench-results
      - bmc-logs
      - evaluate-results
      - tune-results
    required: true
"""

RETURN = r"""
_raw:
  description: The path of each directory. Empty if there is no default, as for V(gateway-ca) and V(gateway-secret).
  type: list
  elements: str
  sample: [/state/rollouts]
"""

import os
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.common.state_dir import StateDirError, state_dir


class LookupModule(LookupBase):
    """The lookup of the directories that the defaults of roles and playbooks name."""

    def run(self, terms: list[str], **_context: Any) -> list[str]:
        """Return the path of each name. Raises AnsibleError for a relative state directory or an unknown name."""
        try:
            return [state_dir(name, os.environ) for name in terms]
        except StateDirError as exc:
            raise AnsibleError(str(exc)) from None
