# SPDX-License-Identifier: GPL-3.0-or-later

import gc
from typing import Any, Iterable, Iterator, Mapping

from ..module_utils.common.kinds import show_value
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.booleans import read_boolean
from ..plugin_utils.common.preload import preload
from ..plugin_utils.fleet.host_reader import FleetError
from ..plugin_utils.gateway.admission import OFF
from ..plugin_utils.gateway.inventory import INFERENCE, address_of, backends_of, clusters_of
from ..plugin_utils.gateway.inventory_variables import InventoryVariables, KeptHostVariables
from ..plugin_utils.gateway.of_hosts import GATEWAYS, gateways_of
from ..plugin_utils.monitoring.targets import NODE_PORT, Exporter, Gateway, decide
from ..plugin_utils.monitoring.tree import entries

MIRRORS = "mirrors"
EXPORTER_VARIABLES = ("site_monitoring", "monitoring_node_listen", "monitoring_node_port")


def exporters_of(hosts: Iterable[str], variables: InventoryVariables) -> dict[str, Exporter]:
    """Return the node exporters of the hosts that site.yml and gateway.yml give one. Raises BooleanError."""
    found = {}
    for host in hosts:
        own = variables[host]
        if own and read_boolean(f"{host}: site_monitoring", own.get("site_monitoring") or False):
            listen = str(own.get("monitoring_node_listen") or "127.0.0.1")
            found[host] = Exporter(listen, int(own.get("monitoring_node_port") or NODE_PORT))
    return found


class ActionModule(ControllerAction):
    """Decide what Prometheus scrapes, for all hosts at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        if not options["directory"].startswith("/"):
            raise FleetError(
                f"monitoring_dir: found {show_value(options['directory'])}, expected an absolute path; set it with "
                "-e monitoring_dir=/srv/monitoring"
            )
        # This process ends with the task.
        gc.disable()
        groups, hostvars = variables["groups"], KeptHostVariables(variables["hostvars"])
        hosts = list(groups.get(INFERENCE, []))
        # Gateways and mirrors that do not serve.
        apart = dict.fromkeys(name for group in (GATEWAYS, MIRRORS) for name in groups.get(group, []))
        apart = {name: None for name in apart if name not in set(hosts)}
        inventory = InventoryVariables(hostvars, self._loader)
        backends = backends_of(hosts, hostvars, self._loader)
        scaled = [each.host for each in backends if any("scale" in plan for plan in each.plans.values())]
        behind = gateways_of(scaled, groups, inventory).values() if scaled else ()
        deciding = {name for names in behind for name in names}
        gateways = [
            Gateway(
                name,
                address_of(name, hostvars),
                str(hostvars[name].get("gateway_stats_listen") or "127.0.0.1"),
                int(hostvars[name].get("gateway_stats_port") or 8404),
                (*_figures_of(name, hostvars[name]), *(["scale"] if name in deciding else [])),
            )
            for name in groups.get(GATEWAYS, [])
        ]
        exporters = exporters_of([*hosts, *apart], InventoryVariables(hostvars, self._loader, EXPORTER_VARIABLES))
        others = {host: address_of(host, inventory) for host in apart if host in exporters}
        found = decide(backends, gateways, clusters_of(hosts, inventory), options["node_port"], exporters, others)
        return {
            "files": entries(options["directory"], found.files()),
            "counts": {job: len(entries) for job, entries in found.jobs.items()},
            "warnings": found.warnings(),
        }


def _figures_of(name: str, own: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a gateway serves beside HAProxy's own figures."""
    if read_boolean(f"{name}: gateway_tokens", own.get("gateway_tokens") or False):
        yield "usage"
    # YAML reads off without quotes as false.
    if (own.get("gateway_admission") or OFF) != OFF:
        yield "admission"


# Ansible has read the inventory by now. Without this, each process of a task would search all of it for garbage.
preload(gc.freeze)
