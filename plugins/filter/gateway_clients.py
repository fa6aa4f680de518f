# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

from ..plugin_utils.gateway import client_table as _client_table

Results = Mapping[str, Mapping[str, Any]]


def gateway_clients(requests: Results, keys: Results, usage: Results, width: int = _client_table.WIDTH) -> str:
    """Return a table of the clients of the gateways."""
    try:
        return _client_table.client_table(dict(requests), dict(keys), dict(usage), time.time(), width)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"gateway_clients: expected results of modules by gateway: {exc!r}") from exc


class FilterModule:
    """Filters for the clients of gateways."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gateway_clients": gateway_clients}
