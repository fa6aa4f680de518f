# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils._errors import PlanError
from ansible_collections.baremetal.inference.plugins.module_utils._manifest import WeightsError, parse
from ansible_collections.baremetal.inference.plugins.plugin_utils._serving import find, read


class ActionModule(ActionBase):
    """Reads the manifests on the controller, where the catalogue is, and hands them to the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        models, directories = args.get("models"), args.pop("manifest_path", None) or []
        if isinstance(models, list) and isinstance(directories, list):
            try:
                args["models"] = resolve(models, directories)
            except (PlanError, WeightsError) as exc:
                raise AnsibleActionFail(f"weights_models: {exc}") from exc
        # Anything else is refused by the module's argument spec.
        result.update(self._execute_module(module_args=args, task_vars=task_vars))
        return result if result.get("failed") else {**result, "asked": models}


def resolve(models: Sequence[Any], directories: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return each model's manifest: the given one, or that of its name. Raises PlanError or WeightsError."""
    return [model if isinstance(model, Mapping) else load(str(model), directories) for model in models]


def load(name: str, directories: Sequence[str]) -> Mapping[str, Any]:
    """Return the manifest called ``name``, looked at here, where its file can be named."""
    path = find("weights", name, (".yml", ".yaml"), directories)
    manifest = read(path)
    try:
        parse(manifest)
    except WeightsError as exc:
        raise WeightsError(f"{path}: {exc}") from exc
    return manifest
