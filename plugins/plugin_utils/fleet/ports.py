# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports of a host on which something else of the collection listens than an instance."""

import contextlib
from typing import Any, Iterator, Mapping, NamedTuple

from ...module_utils.vllm.plan_document import PlanDocument
from ..common.booleans import BooleanError, read_boolean
from ..common.role_options import specs_of
from ..planning.disaggregation import EVERYWHERE
from ..planning.instances import of_replica, port_taken

_LOOPBACK = "127.0.0.1"
# What programs take for an address.
_HOSTS = {"localhost": _LOOPBACK, "": "*"}


class Taken(NamedTuple):
    """Who has a port, by the option that sets it, and the address on which it listens."""

    option: str
    host: str


def taken_ports(own: Mapping[str, Any]) -> dict[int, Taken]:
    """Return the ports that a host's variables give to the exporter, and to a gateway or a mirror beside instances.

    What is not plain is not judged: a template, and a gateway whose services have ports of their own.
    """
    options = _options_on(own)
    values = {name: _value(own, name) for option, address in options.items() for name in (option, address)}
    return {
        int(values[option]): Taken(option, _HOSTS.get(values[address], str(values[address] or address)))
        for option, address in options.items()
        if isinstance(values[option], int) or str(values[option]).isdecimal()
    }


def listens_of(plans: Mapping[str, PlanDocument]) -> dict[str, str]:
    """Return the address of each instance that listens, by the option that sets it."""
    listens = {f"vllm_instances.{plan['replica_of']}.host": plan["listen"] for plan in plans.values()}
    return {option: str(listen["host"]) for option, listen in listens.items() if "host" in listen}


def clashes(plans: Mapping[str, PlanDocument], taken: Mapping[int, Taken]) -> Iterator[str]:
    """Yield a sentence for each instance whose port another program has at the same address."""
    for name, plan in plans.items() if taken else ():
        listen = plan.get("listen") or {}
        other = taken.get(listen["port"]) if listen else None
        if other and (listen["host"] == other.host or {listen["host"], other.host} & {*EVERYWHERE}):
            origin = plan["replica_of"]
            yield port_taken(f"vllm_instances.{origin}.port", listen["port"], of_replica(name, origin), other.option)


def _options_on(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the ports of the roles of a host, each with the option or the address at which it listens."""
    groups, found = own.get("group_names") or (), {}
    if _is_on(own, "site_monitoring"):
        found["monitoring_node_port"] = "monitoring_node_listen"
    if "gateways" in groups:
        found |= {"gateway_stats_port": "gateway_stats_listen", "gateway_agent_port": _LOOPBACK}
        found |= {} if own.get("gateway_services") else {"gateway_port": "gateway_listen"}
        found |= {"gateway_tokens_port": _LOOPBACK} if _is_on(own, "gateway_tokens") else {}
    if "mirrors" in groups:
        found["mirror_port"] = "mirror_listen"
        found |= {"mirror_registry_port": "mirror_listen"} if _is_on(own, "mirror_registry") else {}
    return found


def _is_on(own: Mapping[str, Any], name: str) -> bool:
    with contextlib.suppress(BooleanError):
        return read_boolean(name, own.get(name, False))
    return False


def _value(own: Mapping[str, Any], name: str) -> Any:
    """Return the value of an option of a role, or its default; None for an address."""
    default = specs_of(name.partition("_")[0]).get(name, {}).get("default") if "_" in name else None
    return own.get(name, default)
