# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.places import collection_version
from ..plugin_utils.fleet.host_reader import HostReader
from ..plugin_utils.fleet.plans import plan_fleet
from ..plugin_utils.mirror.needs import (
    Needs,
    add_evaluation,
    add_fleet,
    add_models,
    add_provisioner,
    add_release,
    missing_wheel_bytes,
    plan_from_origin,
)


class ActionModule(ControllerAction):
    """Decide for all hosts at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        needs = Needs(unpinned={} if options["report_unpinned"] else None, pin_dest=options["pin_dest"])
        warnings = self._add_hosts(needs, options["hosts"], variables)
        for release in options["releases"]:
            add_release(needs, release, options["stacks"], options["release_path"])
        add_models(needs, options["models"], options["weights_manifest_path"])
        if options["evaluation"]:
            add_evaluation(needs)
        if options["provisioner"]:
            add_provisioner(needs)
        found = needs.as_dict()
        if not (found["models"] or found["locks"] or found["images"] or found["unpinned"]):
            raise AnsibleActionFail(
                "nothing to fetch: no host of target_hosts has vllm_instances, and neither bundle_releases nor "
                "bundle_models names anything"
            )
        return {
            "warnings": warnings,
            **found,
            "collection_version": collection_version(),
            "wheels_missing_bytes": missing_wheel_bytes(needs.locks, options["root"]),
        }

    def _add_hosts(self, needs: Needs, hosts: list[str], variables: Mapping[str, Any]) -> list[str]:
        """Add what hosts need; return the warnings about hosts that were skipped."""
        if not hosts:
            return []
        fleet = plan_fleet(hosts, HostReader(variables["hostvars"], self._loader), plan_from_origin)
        fleet.check("nothing was fetched")
        add_fleet(needs, fleet)
        # Warnings of plans are for those who serve them; only skipped hosts matter here.
        return [
            note for note in fleet.notes(variables.get("ansible_inventory_sources") or ()) if note.startswith("skipped")
        ]
