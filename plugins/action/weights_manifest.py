# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..plugin_utils.catalog.files import lookup, read
from ..plugin_utils.planning.inputs import PlanError
from ..plugin_utils.weights.load_format import load_format_of


class ActionModule(ActionBase):
    """Read from the model's recipe which format of its weights vLLM reads; the module does the rest."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        directories = args.get("recipe_path") or []
        if "load_format" not in args:
            paths = [directories] if isinstance(directories, str) else [str(one) for one in directories]
            try:
                path = lookup("recipes", str(args.get("model", "")), (".yaml", ".yml"), paths)
                args["load_format"] = load_format_of(read(path)) if path else "auto"
            except PlanError as exc:
                raise AnsibleActionFail(str(exc)) from exc
        return {**result, **self._execute_module(module_args=args, task_vars=task_vars)}
