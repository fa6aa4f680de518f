# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances whose replicas follow the load: gateways start and stop them, or put them to sleep and wake them."""

from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ...module_utils.vllm.plan_document import PlanDocument
from .inputs import PlanError

KEY = "scale"
AUTO, SHADOW = "auto", "shadow"
KEYS, MODES = ("hosts", "max", "min", "mode"), (AUTO, SHADOW)
# A stop of these would free nothing, or leave a part of an instance.
_EXCLUDED = {
    "nodes": "a replica is on one host",
    "prefill": "a replica is on one host",
    "decode": "a replica is on one host",
    "preload": "its weights stay on the chips when it stops",
}


def check_scale(where: str, requested: Mapping[str, Any]) -> None:
    """Raise PlanError for a malformed ``scale``, or one together with what cannot start and stop by itself."""
    if KEY not in requested:
        return
    where, found = f"{where}.{KEY}", requested[KEY]
    if not isinstance(found, Mapping):
        raise PlanError(f"{where}: found {show_value(found)}, expected a mapping such as {{min: 1, max: 4}}")
    for key in found:
        if key not in KEYS:
            # YAML reads the word on as true, which is a text once Ansible has passed it on.
            use = "use 'hosts'" if str(key).lower() in ("true", "on") else nearest(str(key), KEYS)
            raise PlanError(f"{where}: unknown key {show_value(key)}; {use}")
    least, most = found.get("min", 1), found.get("max")
    for key, value, lowest in (("min", least, 0), ("max", most, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise PlanError(f"{where}.{key}: {not_a_number(value, f'a whole number from {lowest}')}")
    if least > most:
        raise PlanError(f"{where}.min: found {least}, which is more than max ({most}); lower it, or raise max")
    if found.get("mode", AUTO) not in MODES:
        mode = found["mode"]
        raise PlanError(f"{where}.mode: found {show_value(mode)}; {nearest(str(mode), MODES)}")
    hosts = found.get("hosts")
    is_list = isinstance(hosts, list) and hosts and all(isinstance(host, str) for host in hosts)
    if "hosts" in found and not is_list:
        raise PlanError(f"{where}.hosts: found {show_value(hosts)}, expected a list of hosts; leave it out for all")
    for key, why in _EXCLUDED.items():
        if requested.get(key):
            raise PlanError(f"{where}: found together with {key}, and {why}; remove scale or {key}")


def check_scale_hosts(instances: Any, hosts: Sequence[str]) -> None:
    """Raise PlanError for a replica on a host that the inventory does not have; ``instances`` may be malformed."""
    for name, requested in instances.items() if isinstance(instances, Mapping) else ():
        scale = requested.get(KEY) if isinstance(requested, Mapping) else None
        named = scale.get("hosts") if isinstance(scale, Mapping) else None
        for host in named if isinstance(named, list) else ():
            if isinstance(host, str) and host not in hosts:
                where = f"vllm_instances.{name}.{KEY}.hosts"
                raise PlanError(f"{where}: the inventory has no host {host!r}; {nearest(host, hosts)}")


def scale_of(requested: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``scale`` with all its keys; None where the replicas always serve."""
    found = requested.get(KEY)
    return {"min": 1, "mode": AUTO, "hosts": [], **found} if found else None


def door_of(host: str, plans: Mapping[str, PlanDocument]) -> dict[str, Any]:
    """Return the configuration of the door through which gateways start and stop instances of a host; empty for none.

    It listens where the instances do.
    """
    found = {
        name: plan for name, plan in plans.items() if "scale" in plan and host in (plan["scale"]["hosts"] or [host])
    }
    if not found:
        return {}
    addresses = list(dict.fromkeys(plan["listen"]["host"] for plan in found.values()))
    return {
        "host": host,
        "listen": addresses[0] if len(addresses) == 1 and addresses[0] not in ("*", "") else "0.0.0.0",  # noqa: S104
        "instances": {name: {"resident": "residents" in plan} for name, plan in sorted(found.items())},
    }
