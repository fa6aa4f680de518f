# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, ClassVar, Mapping

from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import show_value
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.action import ControllerAction
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory import (
    INFERENCE,
    address_of,
    backends_of,
    clusters_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory_variables import (
    InventoryVariables,
    KeptHostVariables,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.of_hosts import GATEWAYS
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.targets import NODE_PORT, Gateway, decide
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.tree import entries


class ActionModule(ControllerAction):
    """Decide what Prometheus scrapes, for all hosts at once."""

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {
        "directory": {"type": "str", "required": True},
        "node_port": {"type": "int", "default": NODE_PORT},
    }
    ERRORS = (FleetError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        if not options["directory"].startswith("/"):
            raise FleetError(
                f"monitoring_dir: found {show_value(options['directory'])}, expected an absolute path; set it with "
                "-e monitoring_dir=/srv/monitoring"
            )
        groups, hostvars = variables["groups"], KeptHostVariables(variables["hostvars"])
        hosts = list(groups.get(INFERENCE, []))
        inventory = InventoryVariables(hostvars, self._loader)
        gateways = [
            Gateway(
                name,
                address_of(name, hostvars),
                str(hostvars[name].get("gateway_stats_listen") or "127.0.0.1"),
                int(hostvars[name].get("gateway_stats_port") or 8404),
            )
            for name in groups.get(GATEWAYS, [])
        ]
        backends = backends_of(hosts, hostvars, self._loader)
        found = decide(backends, gateways, clusters_of(hosts, inventory), options["node_port"])
        return {
            "files": entries(options["directory"], found.files()),
            "counts": {job: len(entries) for job, entries in found.jobs.items()},
            "warnings": found.warnings(),
        }
