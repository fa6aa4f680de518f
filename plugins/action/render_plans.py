# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import FleetError, HostReader, plan_fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.render import RenderError, Tree, write_fleet

ARGUMENT_SPEC = {"dest": {"type": "path", "required": True}}


class ActionModule(ActionBase):
    """Renders all hosts of the play at once on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if not options["dest"]:
            raise AnsibleActionFail("render_dir is missing: name the directory to write into, -e render_dir=DIR")
        variables = task_vars or {}
        tree = Tree(Path(options["dest"]).absolute(), self._task.check_mode, self._task.diff)
        try:
            fleet = plan_fleet(
                variables["ansible_play_hosts_all"], HostReader(variables["hostvars"], self._loader), plan_host
            )
            fleet.check("nothing was written")
            write_fleet(fleet, tree, self._loader)
        except (FleetError, RenderError) as exc:
            raise AnsibleActionFail(str(exc)) from exc
        hosts = sum(len(group.hosts) for group in fleet.groups)
        instances = sum(len(group.hosts) * len(group.plans) for group in fleet.groups)
        return {
            **result,
            "changed": bool(tree.written or tree.removed),
            "warnings": fleet.notes(),
            "hosts": hosts,
            "instances": instances,
            "written": tree.written,
            "removed": tree.removed,
            **({"diff": tree.diffs} if tree.diffs else {}),
        }
