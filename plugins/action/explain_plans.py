# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.explain import (
    ExplainError,
    explained,
    group,
    narrowed,
    plan_table,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import FleetError, HostReader, plan_fleet

ARGUMENT_SPEC = {
    "instance": {"type": "str", "default": ""},
    "format": {"type": "str", "choices": ["table", "json"], "default": "table"},
}


class ActionModule(ActionBase):
    """Explains the plans of all hosts of the play at once on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variables = task_vars or {}
        try:
            fleet = plan_fleet(
                variables["ansible_play_hosts_all"], HostReader(variables["hostvars"], self._loader), plan_host
            )
            fleet.check("nothing is explained")
            groups = group(fleet.plans())
            groups = narrowed(groups, options["instance"]) if options["instance"] else groups
        except (FleetError, ExplainError) as exc:
            raise AnsibleActionFail(str(exc)) from exc
        # The text is shown here as it is: a callback would put it into quotes.
        document = explained(groups)
        as_json = options["format"] == "json"
        Display().display(json.dumps(document, indent=2, ensure_ascii=False) if as_json else plan_table(groups))
        return {**result, "changed": False, "warnings": fleet.notes(), "plans": document}
