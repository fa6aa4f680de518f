# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.fleet.groups import describe_absent
from ..plugin_utils.fleet.host_plans import plan_pinned_host
from ..plugin_utils.fleet.host_reader import HostReader
from ..plugin_utils.fleet.plans import plan_declared


class ActionModule(ControllerAction):
    """Plan all hosts of the play whose hardware is declared at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        reader = HostReader(variables["hostvars"], self._loader)
        hosts = variables["ansible_play_hosts_all"]
        fleet = plan_declared(hosts, reader, plan_pinned_host)
        for host, instances in reader.spanning.items():
            for text in describe_absent(instances, hosts):
                fleet.problems.setdefault(text, []).append(host)
        fleet.check("no host was contacted")
        planned = [host for group in fleet.groups for host in group.hosts]
        return {"planned": planned, "warnings": fleet.idle_notes()}
