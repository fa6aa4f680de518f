# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
from typing import Any, Sequence

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.weights.manifest import WeightsError, parse_manifest
from ..module_utils.weights.progress import format_progress
from ..module_utils.weights.sources import parse_sources
from ..plugin_utils.catalog.manifests import requested_models
from ..plugin_utils.common.action import check_options
from ..plugin_utils.common.output import show, warn
from ..plugin_utils.weights.background import remove_access_file, run_in_background, write_access_file
from ..plugin_utils.weights.push import lacking_of, push_models
from ..plugin_utils.weights.request import add_reasons, attempts, format_fetched, host_of, list_of, number
from ..plugin_utils.weights.source_access import access_of

MODULE = "baremetal.inference.weights"
INTERVAL = 15
# The default of the module's option.
ROOT = "/srv/models"


class ActionModule(ActionBase):
    """Read manifests, tokens and keys on the controller, and push files from there; the module does the rest."""

    ROLES = ("weights",)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        check_options(self.ROLES, task_vars, self._templar)
        args = dict(self._task.args)
        try:
            args["models"] = requested_models(args.get("models"), args.pop("manifest_path", None))
            result.update(self._fetch(args, list_of("sources", args.get("sources")), task_vars or {}))
        except WeightsError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        return result if result.get("failed") else {**result, "asked": self._task.args.get("models")}

    def _fetch(self, args: dict[str, Any], given: Sequence[Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Try the sources in order; a source of the controller is pushed if no source before it works."""
        sources = parse_sources(given)
        manifests = [parse_manifest(model) for model in args["models"]]
        pushed = ""
        failed: list[str] = []
        on_controller: set[str] = set()
        for numbers, of_controller in attempts(sources):
            more: dict[str, Any] = {"sources": [given[number] for number in numbers], "pushed": pushed}
            access = access_of([sources[number] for number in numbers], manifests, os.environ)
            if access:
                more["access_file"] = write_access_file(self, json.dumps(access))
            result = self._attempt({**args, **more}, on_controller, task_vars)
            if failed and result.get("failed"):
                add_reasons(result, failed)
            unsourced = result.pop("unsourced", None)
            if unsourced is None or of_controller is None:
                return result
            lacking = lacking_of(unsourced, manifests, self._remote_expand_user(args.get("root", ROOT)))
            try:
                paths, reasons = push_models(self, of_controller, lacking, number(args.get("bandwidth"), 0))
            except WeightsError as exc:
                paths, reasons = [], [str(exc)]
            on_controller.update(paths)
            pushed = of_controller.text if paths else pushed
            for reason in reasons:
                warn(f"{host_of(task_vars)}: source skipped: {reason}")
            failed += reasons
        raise AssertionError("unreachable")

    def _attempt(self, args: dict[str, Any], on_controller: set[str], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run the module; in check mode it ignores files of the controller, because they were not really pushed."""
        result: dict[str, Any] = {"failed": True}
        try:
            if self._task.check_mode and on_controller:
                rest = [model for model in args["models"] if parse_manifest(model).path not in on_controller]
                result = self._run({**args, "models": rest}, task_vars) if rest else {}
                if not result.get("failed"):
                    everything = {key: value for key, value in args.items() if key != "access_file"}
                    result = self._run({**everything, "check_sources": False}, task_vars)
            else:
                result = self._run(args, task_vars)
        finally:
            if result.get("failed") and "access_file" in args:
                remove_access_file(self, args["access_file"])
        return result

    def _run(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run the module, in the background where it may take its time."""
        host, interval = host_of(task_vars), number(args.get("progress"), INTERVAL)
        if self._task.check_mode or self._task.async_val:
            return dict(self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars))
        result: dict[str, Any] = run_in_background(
            self, MODULE, args, task_vars, lambda report: show(f"{host}: {format_progress(report)}"), interval
        )
        fetched = format_fetched(result.get("models", ()))
        if fetched and interval:
            show(f"{host}: {fetched}")
        return result
