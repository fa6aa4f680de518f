# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ..plugin_utils.gateway import table as _gateway_table


def gateway_engines(
    results: Mapping[str, Mapping[str, Any]], host: str, instances: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Return the instances that are servers of the gateways and run on a host, or on it and others."""
    try:
        return _gateway_table.gateway_engines(dict(results), host, instances)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"gateway_engines: expected results of gateway_server by gateway: {exc!r}") from exc


class FilterModule:
    """Filter for results of gateway_server."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gateway_engines": gateway_engines}
