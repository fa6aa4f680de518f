# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from typing import Any, Iterator, Mapping, Sequence

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.common.kinds import show_value
from ..module_utils.weights.manifest import WeightsError, parse_manifest
from ..module_utils.weights.progress import format_progress, format_summary
from ..module_utils.weights.sources import Source, parse_sources
from ..plugin_utils.catalog.files import find, read
from ..plugin_utils.common.action import check_options
from ..plugin_utils.common.output import show, warn
from ..plugin_utils.planning.inputs import PlanError
from ..plugin_utils.weights.background import remove_access_file, run_in_background, write_access_file
from ..plugin_utils.weights.push import push_models
from ..plugin_utils.weights.source_access import access_of

MODULE = "baremetal.inference.weights"
INTERVAL = 15


class ActionModule(ActionBase):
    """Read manifests, tokens and keys on the controller, and push files from there; the module does the rest."""

    ROLES = ("weights",)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        check_options(self.ROLES, task_vars, self._templar)
        args = dict(self._task.args)
        asked = args.get("models")
        try:
            models = list_of("models", asked)
            directories = [str(one) for one in list_of("manifest_path", args.pop("manifest_path", None))]
            sources = list_of("sources", args.get("sources"))
            try:
                args["models"] = resolve(models, directories)
            except (PlanError, WeightsError) as exc:
                raise WeightsError(f"weights_models: {exc}") from exc
            result.update(self._fetch(args, sources, task_vars or {}))
        except WeightsError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        return result if result.get("failed") else {**result, "asked": asked}

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
                result["msg"] = "; ".join([result["msg"], *failed])
            unsourced = result.pop("unsourced", None)
            if unsourced is None or of_controller is None:
                return result
            try:
                paths, reasons = push_models(self, of_controller, unsourced, number(args.get("bandwidth"), 0))
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
            result: dict[str, Any] = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
            return result
        result = run_in_background(
            self, MODULE, args, task_vars, lambda report: show(f"{host}: {format_progress(report)}"), interval
        )
        fetched = [model for model in result.get("models", ()) if model["bytes"]]
        if fetched and interval:
            show(f"{host}: {format_fetched(fetched)}")
        return result


def list_of(option: str, value: Any) -> list[Any]:
    """Return an option as a list: a text counts as the words between its commas, a mapping as a list of itself.

    Raises WeightsError that names the role's variable.
    """
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(value, Mapping):
        return [value]
    if value is None and option != "models":
        return []
    if not isinstance(value, list):
        raise WeightsError(f"weights_{option}: found {show_value(value)}, expected a list")
    return value


def number(value: Any, default: int) -> int:
    """Return an option's number, or the default if the value is one that the module refuses."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


def attempts(sources: Sequence[Source]) -> Iterator[tuple[list[int], Source | None]]:
    """Yield the places of the sources that a host can read itself, and the one of the controller to push after them."""
    numbers: list[int] = []
    for number, source in enumerate(sources):
        if source.kind == "controller":
            yield list(numbers), source
        else:
            numbers.append(number)
    yield numbers, None


def format_fetched(models: Sequence[Mapping[str, Any]]) -> str:
    """Return the summary of what was fetched."""
    files = sum(len(model["files_fetched"]) for model in models)
    sources = sorted({model["source"] for model in models})
    return format_summary(
        sum(model["bytes"] for model in models), sum(model["seconds"] for model in models), files, sources
    )


def host_of(task_vars: Mapping[str, Any]) -> str:
    """Return what the inventory calls the host."""
    return str(task_vars.get("inventory_hostname", "localhost"))


def resolve(models: Sequence[Any], directories: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return each model's manifest: the given one, or that of its name. Raises PlanError or WeightsError."""
    return [model if isinstance(model, Mapping) else load(str(model), directories) for model in models]


def load(name: str, directories: Sequence[str]) -> Mapping[str, Any]:
    """Return the manifest called ``name``; it is checked here, where an error can name its file."""
    path = find("weights", name, (".yml", ".yaml"), directories)
    manifest = read(path)
    try:
        parse_manifest(manifest)
    except WeightsError as exc:
        raise WeightsError(f"{path}: {exc}") from exc
    return manifest
