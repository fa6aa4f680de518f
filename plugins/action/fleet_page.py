# SPDX-License-Identifier: GPL-3.0-or-later

import difflib
import time
from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.answers import ANSWERS, FAULTS, SERVERS, SLOTS, STARTS, describe_silent, readable
from ..plugin_utils.common.output import show
from ..plugin_utils.fleet_page.faults import fault_rows, with_faults
from ..plugin_utils.fleet_page.lines import fleet_lines, totals
from ..plugin_utils.fleet_page.page import page
from ..plugin_utils.fleet_page.reader import FleetReader, open_page, page_parts, read_fleet
from ..plugin_utils.fleet_page.rows import fleet_rows, instance_rows, service_rows
from ..plugin_utils.fleet_page.service import describe_answers, describe_services, services_table, with_service
from ..plugin_utils.fleet_page.starts import describe_starts
from ..plugin_utils.fleet_page.table import WIDTH, fleet_table
from ..plugin_utils.fleet_page.versions import with_versions
from ..plugin_utils.pages.file import PageFile

# The options that hold answers of hosts.
ANSWERED = {"gateways": SERVERS, "installed": SLOTS, "starts": STARTS, "faults": FAULTS, "answers": ANSWERS}


class ActionModule(ControllerAction):
    """Describe all hosts of the play at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        # First, so that a wrong path is reported before the work begins.
        page_file = open_page(options["page"]) if options["page"] else None
        reader = FleetReader(variables["hostvars"], self._loader)
        hosts, models = read_fleet(variables["ansible_play_hosts_all"], reader)
        gateways, installed, starts, faults, answers = (
            readable(options[name], shape) for name, shape in ANSWERED.items()
        )
        lines = with_service(with_versions(fleet_lines(hosts, models), installed), gateways)
        lines = with_faults(lines, faults)
        written = self._write(page_file, page(lines, models, options["title"], page_parts())) if page_file else {}
        addresses = {name: reader.gateway_address(name) for name in gateways}
        services = services_table(gateways, lines, addresses, WIDTH, answers, faults)
        more = [*describe_services(gateways), *describe_answers(answers)]
        more += [*describe_silent(installed, "instances"), *describe_starts(starts)]
        more += describe_silent(faults, "instances")
        now = time.time()
        blocks = [fleet_table(lines, now), services, more]
        table = "\n\n".join("\n".join(block) for block in blocks if block).split("\n")
        # Display shows the text as it is; a callback would quote it.
        show("\n".join(table))
        silent = {name for name, result in gateways.items() if "servers" not in result}
        for results in (installed, starts, faults):
            silent |= {name for name, result in results.items() if "instances" not in result}
        silent |= {name for name, result in answers.items() if result.get("unreachable") or result.keys() == {"msg"}}
        failed = (
            {"failed": True, "msg": f"not read: {', '.join(sorted(silent))}; the reasons stand above"} if silent else {}
        )
        instances = instance_rows(lines, gateways, addresses, answers, faults, now)
        rows = {"fleet": fleet_rows(lines), "instances": instances}
        rows |= {
            "services": service_rows(instances, gateways, lines),
            **({"faults": fault_rows(faults)} if faults else {}),
        }
        return {**written, **failed, "rows": rows, "table": table, "totals": totals(lines)}

    def _write(self, page_file: PageFile, text: str) -> dict[str, Any]:
        """Write the page where it differs; return the keys of the result about it."""
        changed = page_file.before != text
        if changed and not self._task.check_mode:
            page_file.write(text)
        result: dict[str, Any] = {"changed": changed, "page": page_file.path}
        if changed and self._task.diff:
            before, name = (page_file.before or "").splitlines(True), page_file.path
            result["diff"] = [{"prepared": "".join(difflib.unified_diff(before, text.splitlines(True), name, name))}]
        return result
