# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import is_running, state_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.page_files import (
    ReportFileError,
    page_parts,
    read_journal,
    written,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report import (
    ReportError,
    report,
    summary_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report_page import page

ARGUMENT_SPEC = {
    "journal": {"type": "path", "required": True},
    "dest_json": {"type": "path", "default": ""},
    "dest_html": {"type": "path", "default": ""},
}


class ActionModule(ActionBase):
    """Tells of a rollout from its journal on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            events = read_journal(options["journal"])
            document = report(events, is_running(state_of(events).begun))
            texts = {}
            if options["dest_json"]:
                texts["dest_json"] = json.dumps(document, indent=1, default=str) + "\n"
            if options["dest_html"]:
                texts["dest_html"] = page(document, page_parts())
            changed = [written(name, options[name], text, self._task.check_mode) for name, text in texts.items()]
        except ReportError as exc:
            raise AnsibleActionFail(
                f"journal: {options['journal']} cannot be reported on: {exc}; expected a rollout's journal"
            ) from exc
        except ReportFileError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        return {**result, "changed": any(changed), "summary": summary_of(document)}
