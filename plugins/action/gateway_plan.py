# SPDX-License-Identifier: GPL-3.0-or-later

import time
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.gateway.clients import ending
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.origins import with_origin
from ..plugin_utils.fleet.host_reader import FleetError
from ..plugin_utils.gateway.admission import OFF
from ..plugin_utils.gateway.inventory import (
    INFERENCE,
    address_of,
    backends_of,
    clusters_of,
    hosts_of,
    peers_of,
    plain_options,
    read_clients,
    served_cluster,
    with_services,
)
from ..plugin_utils.gateway.inventory_variables import InventoryVariables
from ..plugin_utils.gateway.of_hosts import shares_of
from ..plugin_utils.gateway.served import first_instance, urls_of
from ..plugin_utils.gateway.services import GatewayError, decide


class ActionModule(ControllerAction):
    """Decide what a gateway serves."""

    ROLES = ("gateway",)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        gateway, groups, hostvars = variables["inventory_hostname"], variables["groups"], variables["hostvars"]
        problems: list[str] = []
        found: dict[str, Any] = {}
        try:
            options = plain_options(options)
            clients, problems = read_clients(options["clients"], options["read_keys"])
            inventory = InventoryVariables(hostvars, self._loader)
            serving = clusters_of(groups.get(INFERENCE, []), inventory)
            cluster = options["cluster"] or served_cluster(inventory[gateway])
            hosts = hosts_of(options["backends"], cluster, groups, serving)
            shares = shares_of(hosts, groups, inventory, gateway) if options["admission"] != OFF else {}
            options = {**options, "shares": shares}
            backends = backends_of(hosts, hostvars, self._loader)
            found = decide(gateway, backends, options)
            found["peers"] = peers_of(gateway, options, groups, hostvars)
            clients, unknown = with_services(clients, options["clients"], found.pop("models"))
            problems += unknown
            own_address = address_of(gateway, hostvars)
        except (FleetError, GatewayError) as exc:
            problems.append(str(exc))
        if problems:
            lines = [with_origin(line, variables) for line in "\n".join(problems).splitlines()]
            raise AnsibleActionFail("\n".join(f"{gateway}: {line}" for line in lines))
        shared = options["address"].partition("/")[0]
        names = [gateway, own_address, shared, *options["names"]]
        models = {service["name"]: service["models"] for service in found["services"]}
        paths = {name: entry["key_file"] for name, entry in options["clients"].items() if "key_file" in entry}
        warnings = [*found["warnings"], *ending(clients, time.time())]
        return {
            **found,
            "warnings": [f"{gateway}: {text}" for text in warnings],
            "clients": [client.as_dict() for client in clients],
            "names": list(dict.fromkeys(name for name in names if name)),
            # For the end of the run.
            "served": {
                "urls": urls_of(shared or own_address, options["tls"] != "off", found["listeners"], models),
                "key_files": paths,
                "open": options["open"],
                "first": first_instance({backend.host: backend.plans for backend in backends}),
            },
        }
