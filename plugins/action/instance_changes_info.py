# SPDX-License-Identifier: GPL-3.0-or-later

import hashlib
from typing import Any, Mapping

from ansible.plugins.action import ActionBase

from ..plugin_utils.fleet.render import RoleTemplates

KEPT = ("path", "mode", "owner", "group", "restarts")


class ActionModule(ActionBase):
    """Renders the files on the controller and runs the module, which compares their hashes with those on the host."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = {**self._task.args}
        files = arguments.get("files") or []
        variables = task_vars or {}
        templates = RoleTemplates(self._loader)
        stage = set(arguments.get("stage") or [])
        texts = {entry["path"]: self._text(entry, templates, variables) for entry in files}
        arguments["digests"] = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
        arguments["contents"] = {
            entry["path"]: texts[entry["path"]] for entry in files if stage & set(entry["restarts"])
        }
        arguments["files"] = [{key: entry[key] for key in KEPT} for entry in files]
        answer = self._execute_module(
            module_name="baremetal.inference.instance_changes_info",
            module_args=arguments,
            task_vars=variables,
            wrap_async=False,
        )
        return {**result, **answer}

    @staticmethod
    def _text(entry: Mapping[str, Any], templates: RoleTemplates, variables: Mapping[str, Any]) -> str:
        return templates.render(entry["template"], entry, variables)
