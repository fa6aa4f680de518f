# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances of a host span several hosts, from the inventory alone: nothing is planned."""

from typing import Any, Iterable, Mapping, Sequence

from ansible.errors import AnsibleError
from ansible.template import Templar

from ..common.templates import as_text
from ..planning.inputs import PlanError
from .members import HOST_KEYS, expand, spans

INSTANCES = "vllm_instances"

# By instance: its hosts, the head first.
Spanning = Mapping[str, Sequence[str]]


def spanning_of(
    hosts: Iterable[str], hostvars: Any, loader: Any, groups: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, list[str]]]:
    """Return by host the instances that span hosts, each with its hosts in the order of their ranks.

    Used where nothing is changed on the hosts, and where the inventory may be the fault: an instance whose hosts cannot
    be found out is left out.
    """
    return {host: _of_host(host, hostvars, loader, groups) for host in hosts}


def _of_host(host: str, hostvars: Any, loader: Any, groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    own = hostvars.raw_get(host)
    instances = own.get(INSTANCES)
    if isinstance(instances, Mapping) and not spans(instances):
        return {}
    templar = Templar(loader=loader, variables={**own, "hostvars": hostvars})
    try:
        if isinstance(instances, str):
            instances = as_text(templar.template(instances))
        if not spans(instances):
            return {}
        nodes = {
            name: {key: entry[key] for key in HOST_KEYS if key in entry}
            for name, entry in instances.items()
            if spans({name: entry})
        }
        found = expand(templar.template(nodes), groups)
    except (AnsibleError, PlanError):
        return {}
    return {name: list(entry["nodes"]) for name, entry in found.items() if len(entry["nodes"]) > 1}
