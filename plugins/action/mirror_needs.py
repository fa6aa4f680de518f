# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import FleetError, HostReader, plan_fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.mirror.needs import (
    Needs,
    NeedsError,
    add_fleet,
    add_models,
    add_release,
    plan_from_origin,
    still_to_come,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

LIST = {"type": "list", "elements": "str", "default": []}
PATHS = {"type": "list", "elements": "path", "default": []}
ARGUMENT_SPEC = {
    "root": {"type": "path", "required": True},
    "hosts": LIST,
    "releases": LIST,
    "stacks": LIST,
    "models": LIST,
    "release_path": PATHS,
    "weights_manifest_path": PATHS,
}


class ActionModule(ActionBase):
    """Decides for all hosts at once on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        needs = Needs()
        try:
            warnings = self._add_hosts(needs, options["hosts"], (task_vars or {})["hostvars"])
            for release in options["releases"]:
                add_release(needs, release, options["stacks"], options["release_path"])
            add_models(needs, options["models"], options["weights_manifest_path"])
        except (FleetError, NeedsError, PlanError) as exc:
            raise AnsibleActionFail(str(exc)) from exc
        found = needs.as_dict()
        if not (found["models"] or found["locks"] or found["images"]):
            raise AnsibleActionFail(
                "nothing to fetch: no host of bundle_hosts has vllm_instances, and neither bundle_releases nor "
                "bundle_models names anything"
            )
        more = still_to_come(needs.locks, options["root"])
        return {**result, "changed": False, "warnings": warnings, **found, "wheels_missing_bytes": more}

    def _add_hosts(self, needs: Needs, hosts: list[str], hostvars: Mapping[str, Any]) -> list[str]:
        """Add what hosts need; return what is to be said of them."""
        if not hosts:
            return []
        fleet = plan_fleet(hosts, HostReader(hostvars, self._loader), plan_from_origin)
        fleet.check("nothing was fetched")
        add_fleet(needs, fleet)
        # Warnings of plans are for those who serve them; only a host that is passed over matters here.
        return [note for note in fleet.notes() if note.startswith("skipped")]
