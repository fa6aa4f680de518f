# SPDX-License-Identifier: GPL-3.0-or-later

import json
from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.rollout.journal import is_running, state_of
from ..plugin_utils.rollout.page_files import ReportFileError, page_parts, read_journal, write_changed
from ..plugin_utils.rollout.report import ReportError, report, summary_of
from ..plugin_utils.rollout.report_page import page


class ActionModule(ControllerAction):
    """Writes the report of a rollout from its journal."""

    def decide(self, options: dict[str, Any], _variables: dict[str, Any]) -> dict[str, Any]:
        try:
            events = read_journal(options["journal"])
            document = report(events, is_running(state_of(events).begun))
            texts = {}
            if options["dest_json"]:
                texts["dest_json"] = json.dumps(document, indent=1, default=str) + "\n"
            if options["dest_html"]:
                texts["dest_html"] = page(document, page_parts())
            changed = [write_changed(name, options[name], text, self._task.check_mode) for name, text in texts.items()]
        except ReportError as exc:
            raise ReportFileError(
                f"journal: {options['journal']} cannot be reported on: {exc}; expected a rollout's journal"
            ) from exc
        return {"changed": any(changed), "summary": summary_of(document)}
