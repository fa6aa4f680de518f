# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ..plugin_utils.gateway import table as _gateway_table


def gateway_table(
    results: Mapping[str, Mapping[str, Any]],
    width: int = _gateway_table.WIDTH,
    instances: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return a text table of the servers of each gateway and who drained them."""
    try:
        return _gateway_table.gateway_table(dict(results), width, instances)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"gateway_table: expected results of gateway_server by gateway: {exc!r}") from exc


class FilterModule:
    """Filters for results of gateway_server."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gateway_table": gateway_table}
