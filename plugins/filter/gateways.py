# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import time
from typing import Any, Callable, Iterable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ..module_utils.gateway.servers import server_name
from ..module_utils.slots.state import GOOD
from ..plugin_utils.common.answers import KEYS, SERVERS, USAGE, describe_silent, readable
from ..plugin_utils.common.output import warn
from ..plugin_utils.gateway import client_table as _client_table
from ..plugin_utils.gateway import table as _gateway_table
from ..plugin_utils.gateway import usage as _usage

Results = Mapping[str, Mapping[str, Any]]
WRONG = (AttributeError, KeyError, TypeError, ValueError)


def gateway_clients(requests: Results, keys: Results, usage: Results, width: int = _client_table.WIDTH) -> str:
    """Return a table of the clients of the gateways."""
    try:
        known, used = readable(dict(keys), KEYS), readable(dict(usage), USAGE)
        return _client_table.client_table(dict(requests), known, used, time.time(), width)
    except WRONG as exc:
        raise AnsibleFilterError(f"gateway_clients: expected results of modules by gateway: {exc!r}") from exc


def gateway_engines(results: Results, host: str, instances: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the instances that are servers of the gateways and run on a host, or on it and others."""
    try:
        odd = describe_silent(readable(dict(results), SERVERS), "servers")
        if odd:
            raise ValueError("; ".join(odd))
        return _gateway_table.gateway_engines(dict(results), host, instances)
    except WRONG as exc:
        raise AnsibleFilterError(f"gateway_engines: expected results of gateway_server by gateway: {exc!r}") from exc


def gateway_table(
    results: Results, width: int = _gateway_table.WIDTH, instances: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return a text table of the servers of each gateway and who drained them."""
    try:
        return _gateway_table.gateway_table(readable(dict(results), SERVERS), width, instances)
    except WRONG as exc:
        raise AnsibleFilterError(f"gateway_table: expected results of gateway_server by gateway: {exc!r}") from exc


def gateway_usage(results: Results, form: str = "table", width: int = _usage.WIDTH) -> str:
    """Return the tokens that all gateways counted, as a table, CSV or JSON."""
    try:
        read = readable(dict(results), USAGE)
        for text in describe_silent(read, "rows") if form != "table" else ():
            warn(text)
        return _usage.usage_text(read, form, width)
    except (AttributeError, KeyError, TypeError) as exc:
        raise AnsibleFilterError(f"gateway_usage: expected results of gateway_usage_info by gateway: {exc!r}") from exc
    except ValueError as exc:
        raise AnsibleFilterError(f"gateway_usage: {exc}") from exc


def server_names(instances: Iterable[str], host: str) -> list[str]:
    """Return the names that gateways have for instances of a host."""
    return [server_name(host, instance) for instance in instances]


def servers_without_slot(servers: Sequence[str], slots: Results, host: str) -> list[str]:
    """Return the servers (``HOST--INSTANCE``) of a host's installed instances without a kept state."""
    names = {server_name(host, name) for name, slot in slots.items() if not slot.get(GOOD)}
    return [server for server in servers if server in names]


class FilterModule:
    """Filters of gateways: their servers, clients and tokens."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        named = (gateway_clients, gateway_engines, gateway_table, gateway_usage, server_names, servers_without_slot)
        return {each.__name__: each for each in named}
