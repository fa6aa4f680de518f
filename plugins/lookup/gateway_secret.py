# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: gateway_secret
short_description: (internal) The secret between gateways and instances, and the keys that follow from it
description:
  - Internal to the collection's roles.
  - Returns the secret of the inventory, else that of the file C(gateway-secret) below E(BAREMETAL_STATE_DIR). A run
    that is not in check mode makes the file where it is missing.
  - The secret stays on the controller. Hosts get what O(instance), O(door) and O(gateway) say.
options:
  _terms:
    description: The value of C(gateway_secret), which may be empty.
    type: list
    elements: str
    required: true
  instance:
    description: The names of a service, a host and its instance. The result is what the instance accepts of gateways.
    type: list
    elements: str
  door:
    description: The name of a host. The result is what the host accepts of gateways that start and stop its replicas.
    type: str
  gateway:
    description: What M(baremetal.inference.gateway_plan) returns. The result is the gateway's keys as a map of HAProxy.
    type: dict
"""

EXAMPLES = r"""
- name: Check the secret
  ansible.builtin.assert:
    that: lookup('baremetal.inference.gateway_secret', gateway_secret) | length > 0
"""

RETURN = r"""
_raw:
  description: One secret, two with a space between them while it changes, or an empty text; else what is asked for.
  type: list
  elements: str
"""

import os
import re
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.common.origins import with_origin
from ..plugin_utils.common.state_dir import VARIABLE, StateDirError, state_dir
from ..plugin_utils.gateway.engine_secret import (
    FILE,
    OPTION,
    SecretError,
    accepted_by,
    door_keys,
    engine_secret,
    map_of_gateway,
)

# A file that is named, whose text may not be empty; with a default the inventory says that it may.
_OF_FILE = re.compile(
    r"(lookup|query|q)\(\s*['\"](ansible\.builtin\.)?(file|unvault|password)['\"](?!.*\bdefault\b)", re.S
)


class LookupModule(LookupBase):
    """The lookup of the secret, for the roles gateway and vllm."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **options: Any) -> list[str]:
        """Return the secret, or keys. Raises AnsibleError without them in the message."""
        create = not (variables or {}).get("ansible_check_mode", False)
        try:
            if not all(terms) and _OF_FILE.search(str((variables or {}).get(OPTION) or "")):
                text = f"{OPTION}: the file that it names is empty; write one line of openssl rand -hex 32"
                raise SecretError(with_origin(text, variables or {}))
            path = state_dir(FILE, os.environ)
            found = [engine_secret(str(term or ""), path, create) for term in terms]
        except (StateDirError, SecretError) as exc:
            raise AnsibleError(str(exc)) from None
        except OSError as exc:
            raise AnsibleError(f"{VARIABLE}: the file {FILE} below it: {exc.strerror}") from None
        instance, gateway = options.get("instance"), options.get("gateway")
        if instance:
            return [accepted_by(secret, *instance) for secret in found]
        if options.get("door"):
            return [door_keys(secret, str(options["door"])) for secret in found]
        return [map_of_gateway(secret, gateway) for secret in found] if gateway else found
