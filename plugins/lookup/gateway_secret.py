# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gateway_secret
short_description: (internal) The secret between gateways and instances
description:
  - Internal to the collection's roles.
  - Returns the secret of the inventory, else that of the file C(gateway-secret) below E(BAREMETAL_STATE_DIR). A run
    that is not in check mode makes the file where it is missing.
options:
  _terms:
    description: The value of C(gateway_secret), which may be empty.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Check the secret
  ansible.builtin.assert:
    that: lookup('baremetal.inference.gateway_secret', gateway_secret) | length > 0
"""

RETURN = r"""
_raw:
  description: One secret, two with a space between them while it changes, or an empty text.
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.common.state_dir import VARIABLE, StateDirError, state_dir
from ..plugin_utils.gateway.engine_secret import FILE, SecretError, engine_secret


class LookupModule(LookupBase):
    """The lookup of the secret, for the roles gateway and vllm."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **_context: Any) -> list[str]:
        """Return the secret. Raises AnsibleError without it in the message."""
        create = not (variables or {}).get("ansible_check_mode", False)
        try:
            path = state_dir(FILE, os.environ)
            return [engine_secret(str(term or ""), path, create) for term in terms]
        except (StateDirError, SecretError) as exc:
            raise AnsibleError(str(exc)) from None
        except OSError as exc:
            raise AnsibleError(f"{VARIABLE}: the file {FILE} below it: {exc.strerror}") from None
