# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, cast

from ..module_utils.vllm.plan_document import PlanDocument
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show, show_json
from ..plugin_utils.common.places import misplaced
from ..plugin_utils.evidence.citation import cite
from ..plugin_utils.evidence.files import load_evidence
from ..plugin_utils.fleet.explain import (
    as_documents,
    command_line,
    command_lines,
    group,
    how_to_narrow,
    plan_table,
    select_instance,
    short_table,
    shown_warnings,
)
from ..plugin_utils.fleet.host_plans import plan_equipped_host
from ..plugin_utils.fleet.host_reader import HostReader
from ..plugin_utils.fleet.plans import plan_fleet


class ActionModule(ControllerAction):
    """Explains the plans of all hosts of the play at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        evidence = load_evidence(options["evidence_path"])
        reader = HostReader(variables["hostvars"], self._loader)
        fleet = plan_fleet(variables["ansible_play_hosts_all"], reader, plan_equipped_host)
        fleet.check("no plan is shown")
        fleet.forget(variables["groups"])
        groups = group(fleet.plans())
        groups = select_instance(groups, options["instance"]) if options["instance"] else groups
        groups = [
            {**entry, "evidence": cite(cast(PlanDocument, entry), evidence), "command": command_line(entry)}
            for entry in groups
        ]
        # The text is shown here as it is: a callback would put it into quotes.
        document = as_documents(groups)
        as_json = options["format"] == "json"
        if as_json:
            show_json(document)
        elif not groups:
            # Of gateways the next play of the playbook speaks.
            if {*variables["ansible_play_hosts_all"]} - {*variables["groups"].get("gateways", ())}:
                show("no instance is planned")
        elif options["format"] == "short":
            show(short_table(groups))
        else:
            show(f"{how_to_narrow(groups)}{plan_table(groups)}\n\n{command_lines(groups)}")
        sources = variables.get("ansible_inventory_sources") or ()
        shown = set() if as_json else shown_warnings(groups, options["format"] == "short")
        warnings = [*fleet.notes(sources, shown), *misplaced({"evidence_path": options["evidence_path"]}, sources)]
        return {"warnings": warnings, "plans": document}
