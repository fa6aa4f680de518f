# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, ClassVar, Iterable, Mapping

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.action import ControllerAction
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.of_hosts import (
    GATEWAYS,
    clusters_of,
    gateways_of,
    hosts_behind,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayError

VARIABLES = ("cluster", "gateway_cluster", "gateway_backends")


class ActionModule(ControllerAction):
    """Read the gateways of hosts from the inventory."""

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "group": {"type": "str", "default": GATEWAYS},
    }
    ERRORS = (GatewayError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        groups, hosts = variables["groups"], options["hosts"]
        known = set(groups["all"])
        unknown = [f"{host} ({nearest(host, known)})" for host in hosts if host not in known]
        if unknown:
            raise AnsibleActionFail(f"hosts: the inventory has no {', '.join(unknown)}")
        inventory = _InventoryVariables(variables["hostvars"], self._loader)
        gateways = gateways_of(hosts, groups, inventory, options["group"])
        return {"gateways": gateways, "hosts": hosts_behind(gateways), "clusters": clusters_of(hosts, inventory)}


class _InventoryVariables:
    """The VARIABLES of each host. Values without a template are returned as they are, because templating is slow."""

    def __init__(self, hostvars: Any, loader: Any) -> None:
        self._hostvars = hostvars
        self._loader = loader

    def __getitem__(self, host: str) -> Mapping[str, Any]:
        own = self._hostvars.raw_get(host)
        found = {name: own[name] for name in VARIABLES if name in own}
        if any("{{" in text or "{%" in text for text in _texts(found.values())):
            templar = Templar(loader=self._loader, variables={**own, "hostvars": self._hostvars})
            try:
                return {name: templar.template(value) for name, value in found.items()}
            except AnsibleError as exc:
                raise AnsibleActionFail(f"{host}: {', '.join(found)}: {exc}") from exc
        return found


def _texts(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        yield from _texts(value) if isinstance(value, (list, tuple)) else (str(value),)
