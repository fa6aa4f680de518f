# SPDX-License-Identifier: GPL-3.0-or-later

import os
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.common.spelling import nearest
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.controller_user import controller_user
from ..plugin_utils.fleet.spanning import spanning_of
from ..plugin_utils.gateway.inventory import clusters_of
from ..plugin_utils.gateway.inventory_variables import InventoryVariables
from ..plugin_utils.gateway.of_hosts import gateways_of, groups_behind, hosts_behind, together_of


class ActionModule(ControllerAction):
    """Read the gateways of hosts from the inventory."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        groups, hosts = variables["groups"], options["hosts"]
        known = set(groups["all"])
        unknown = [f"{host} ({nearest(host, known)})" for host in hosts if host not in known]
        if unknown:
            raise AnsibleActionFail(f"hosts: the inventory has no {', '.join(unknown)}")
        inventory = InventoryVariables(variables["hostvars"], self._loader)
        spanning = spanning_of(hosts, variables["hostvars"], self._loader, groups)
        together = together_of(hosts, spanning, options["instance"])
        members = [host for each in together for host in each.hosts]
        wanted = members if options["instance"] else [*hosts, *members]
        gateways = gateways_of(dict.fromkeys(wanted), groups, inventory, options["group"])
        behind = hosts_behind(gateways)
        named = set() if options["instance"] else set(hosts)
        return {
            "gateways": gateways,
            "hosts": {gateway: [host for host in names if host in named] for gateway, names in behind.items()},
            "groups": {**{gateway: [] for gateway in behind}, **groups_behind(together, gateways)},
            "instances": [{"instance": each.instance, "hosts": list(each.hosts)} for each in together],
            "clusters": clusters_of(hosts, inventory),
            "user": controller_user(os.environ),
        }
