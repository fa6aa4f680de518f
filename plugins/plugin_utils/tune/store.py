# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a tune on the controller, in DIR/HOST/INSTANCE: an interrupted tune continues from them.

tune.json has the settings, plans/VARIANT.json the plan of each variant, failures.json the failed plans. The room bench
stores measurements in a directory for each plan, so that the same plan is not measured twice.
"""

import json
import os
import platform
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, Mapping, Sequence, cast

from ...module_utils.common.files_host import publish
from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.processes_host import boot_id, started_at
from ...module_utils.vllm.plan_document import PlanDocument
from ..bench.records import Records
from ..bench.summary import Record
from ..bench.workloads import Amount, Step, Workload, requests_of
from ..evidence.document import plan_digest
from ..rollout.journal import is_running
from .figures import figures_of
from .goal import Goal
from .schedule import Rules, Taken
from .variants import TuneError

SETTINGS, FAILURES, PLANS = "tune.json", "failures.json", "plans"


class Store:
    """The directory of the tunes of one instance."""

    def __init__(self, top: str, host: str, instance: str) -> None:
        self.top = str(Path(os.path.expanduser(top)).absolute())
        self.host, self.instance = host, instance
        parts = [re.sub(r"[^\w.:-]", "_", part) for part in (host, instance)]
        self.directory = Path(self.top).joinpath(*parts)

    @property
    def id(self) -> str:
        """The name of the tune in the lock of the host; an interrupted tune has the same name when it continues."""
        return f"{platform.node()}:{self.directory}"

    def check_free(self) -> None:
        """Raise TuneError where a tune of this instance runs on this controller."""
        found = self._read(SETTINGS, {}).get("process") or {}
        if found.get("controller") == platform.node() and found.get("pid") != os.getppid() and is_running(found):
            raise TuneError(
                f"tune_dir: {self.directory}: process {found['pid']} tunes this instance; wait until it has ended"
            )

    def begin(self, variants: Mapping[str, Any], goal: Goal, rules: Rules, workload: Workload, amount: Amount) -> None:
        """Write the settings of a tune that begins or continues. Raises TuneError."""
        # The worker's parent is ansible-playbook itself.
        pid = os.getppid()
        process = {"pid": pid, "pid_started": started_at(pid), "boot": boot_id(), "controller": platform.node()}
        settings = {
            "process": process,
            "variants": variants,
            "goal": asdict(goal),
            "rules": asdict(rules),
            "workload": asdict(workload),
            "requests": requests_of(workload, goal.concurrency, amount),
        }
        self._write(SETTINGS, settings)

    def settings(self) -> Mapping[str, Any]:
        """Return the settings that begin has written. Raises TuneError."""
        found = self._read(SETTINGS, None)
        if not found:
            raise TuneError(f"tune_dir: {self.directory / SETTINGS} is not there; it is written when a tune begins")
        return dict(found)

    def keep_plan(self, variant: str, plan: PlanDocument) -> None:
        """Write the plan of a variant. Raises TuneError."""
        self._write(f"{PLANS}/{variant}.json", plan)

    def plan(self, variant: str) -> PlanDocument:
        """Return the plan of a variant. Raises TuneError."""
        found = self._read(f"{PLANS}/{variant}.json", None)
        if not found:
            raise TuneError(f"tune_dir: {self.directory / PLANS / variant}.json is not there; the next run writes it")
        return cast(PlanDocument, found)

    def records(self, plan: PlanDocument) -> Records:
        """Return the measurements of a plan."""
        return Records(self.top, self.host, self.instance, plan_digest(plan), "tune_dir")

    def taken_records(self, variant: str, step: Step, rounds: int) -> dict[int, Record]:
        """Return the measurements of a variant by round."""
        records = self.records(self.plan(variant))
        found = {number: records.read(step, number) for number in range(1, rounds + 1)}
        return {number: record for number, record in found.items() if record is not None}

    def taken(self, variants: Sequence[str], step: Step, rounds: int) -> Taken:
        """Return the present results of the variants."""
        figures = {
            name: {number: figures_of(record) for number, record in self.taken_records(name, step, rounds).items()}
            for name in variants
        }
        failures = self._read(FAILURES, {})
        digests = {name: plan_digest(self.plan(name)) for name in variants}
        return Taken(figures, {name: failures[digests[name]] for name in variants if digests[name] in failures})

    def keep_failure(self, variant: str, reason: str) -> None:
        """Note that the plan of a variant failed. Raises TuneError."""
        self._write(FAILURES, {**self._read(FAILURES, {}), plan_digest(self.plan(variant)): reason})

    def forget(self, variants: Sequence[str]) -> None:
        """Remove the measurements and failures of variants. Raises TuneError."""
        for name in variants:
            self.records(self.plan(name)).forget()
        self._write(FAILURES, {})

    def write(self, name: str, text: str) -> str:
        """Write a file of the directory in one step and return its path. Raises TuneError."""
        path = self.directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            publish(str(path), text)
        except OSError as exc:
            raise TuneError(
                f"tune_dir: {path} cannot be written: {exc.strerror}. What was measured before is kept; make room and "
                "run the playbook again, which goes on"
            ) from exc
        return str(path)

    def _write(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, indent=1, default=str) + "\n")

    def _read(self, name: str, otherwise: Any) -> Any:
        path = self.directory / name
        try:
            return load_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return otherwise
        except (OSError, ValueError) as exc:
            raise TuneError(f"tune_dir: {path} cannot be read: {exc}; remove it to begin again") from exc


def step_of(settings: Mapping[str, Any]) -> Step:
    """Return the step that all measurements of a tune have in common."""
    return Step(Workload(**settings["workload"]), settings["goal"]["concurrency"], settings["requests"])


def goal_of(settings: Mapping[str, Any]) -> Goal:
    """Return the goal of a tune."""
    return Goal(**settings["goal"])


def rules_of(settings: Mapping[str, Any]) -> Rules:
    """Return the rules of a tune."""
    return Rules(**settings["rules"])
