# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import difflib
import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.overview.lines import overview, totals
from ansible_collections.baremetal.inference.plugins.plugin_utils.overview.page import page
from ansible_collections.baremetal.inference.plugins.plugin_utils.overview.reader import (
    OverviewReader,
    PageError,
    PageFile,
    page_parts,
    read_fleet,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.overview.table import fleet_table

ARGUMENT_SPEC = {
    "page": {"type": "path", "default": ""},
    "title": {"type": "str", "default": "The fleet"},
}


class ActionModule(ActionBase):
    """Tells of all hosts of the play at once on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variables = task_vars or {}
        try:
            # First, so that a path that cannot be is told at once.
            target = PageFile(options["page"]) if options["page"] else None
            reader = OverviewReader(variables["hostvars"], self._loader)
            hosts, models = read_fleet(variables["ansible_play_hosts_all"], reader)
            lines = overview(hosts, models)
            if target:
                result.update(self._written(target, page(lines, models, options["title"], page_parts())))
        except (AcceleratorError, PageError) as exc:
            raise AnsibleActionFail(str(exc)) from exc
        table = fleet_table(lines, time.time())
        # The text is shown here as it is: a callback would put it into quotes.
        Display().display("\n".join(table))
        return {"changed": False, **result, "table": table, "totals": totals(lines)}

    def _written(self, target: PageFile, text: str) -> dict[str, Any]:
        """Write the page where it differs and return what is to be told of that."""
        changed = target.before != text
        if changed and not self._task.check_mode:
            target.write(text)
        told: dict[str, Any] = {"changed": changed, "page": target.path}
        if changed and self._task.diff:
            before = (target.before or "").splitlines(True)
            name = target.path
            told["diff"] = [{"prepared": "".join(difflib.unified_diff(before, text.splitlines(True), name, name))}]
        return told
