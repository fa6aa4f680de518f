# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path
from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.fleet.explain import command_lines, group
from ..plugin_utils.fleet.host_plans import plan_equipped_host
from ..plugin_utils.fleet.host_reader import HostReader
from ..plugin_utils.fleet.plans import plan_fleet
from ..plugin_utils.fleet.render import RenderError, Tree, summary, write_fleet


class ActionModule(ControllerAction):
    """Renders the plans of all hosts of the play at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        if not options["dest"]:
            raise RenderError(
                "render_dir is missing: set it to the directory to write into, for example -e render_dir=DIR"
            )
        tree = Tree(Path(options["dest"]).absolute(), self._task.check_mode, self._task.diff)
        reader = HostReader(variables["hostvars"], self._loader)
        fleet = plan_fleet(variables["ansible_play_hosts_all"], reader, plan_equipped_host)
        fleet.check("nothing was written")
        fleet.check_instances(reader)
        write_fleet(fleet, tree, self._loader)
        fleet.forget(variables["groups"])
        # The task runs once, so a callback names one host only and not what was done.
        show(summary(fleet, tree))
        if options["commands"]:
            show(command_lines(group(fleet.plans())))
        hosts = sum(len(alike.hosts) for alike in fleet.groups)
        instances = sum(len(alike.hosts) * len(alike.plans) for alike in fleet.groups)
        return {
            "changed": bool(tree.written or tree.removed),
            "warnings": fleet.notes(variables.get("ansible_inventory_sources") or ()),
            "msg": summary(fleet, tree),
            "hosts": hosts,
            "instances": instances,
            "written": tree.written,
            "removed": tree.removed,
            **({"diff": tree.diffs} if tree.diffs else {}),
        }
