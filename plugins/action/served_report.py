# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.gateway.inventory_variables import InventoryVariables
from ..plugin_utils.gateway.served import of_gateways, of_hosts

# What the roles gateway and vllm give other plays on each host.
GATEWAY, HOST = "gateway_served", "vllm_plan"


class ActionModule(ControllerAction):
    """Show where the models are served, once for all hosts of the play."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        del options
        hostvars, is_check = variables["hostvars"], bool(self._task.check_mode)
        own = {host: hostvars.raw_get(host) for host in variables["ansible_play_hosts"]}
        gateways = {host: each[GATEWAY] for host, each in own.items() if GATEWAY in each}
        lines = of_gateways(gateways, is_check)
        if not gateways:
            plans = {host: each[HOST]["plans"] for host, each in own.items() if "plans" in _result(each)}
            inventory = InventoryVariables(hostvars, self._loader)
            addresses = {host: str(inventory[host].get("ansible_host") or host) for host in plans}
            lines = of_hosts(plans, addresses, is_check)
        if lines:
            show("\n".join(["", *lines]))
        return {"lines": lines}


def _result(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the task of the role vllm has registered, which a run with tags may have skipped."""
    found: Mapping[str, Any] = variables.get(HOST) or {}
    return found
