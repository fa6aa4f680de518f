# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of a benchmark on the controller's disk; each measurement is saved immediately."""

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any, Iterator, Mapping

from ...module_utils.common.files_host import LockedError, locked, publish
from ...module_utils.common.foreign_json import load_json
from .summary import Record
from .workloads import Step, definition

SCHEMA = 1
SUMMARY = "summary.json"


class RecordError(ValueError):
    """A directory of results cannot be used; the message is the whole sentence."""


class Records:
    """The directory of one instance's results with one plan: DIR/HOST/INSTANCE/PLAN."""

    def __init__(self, top: str, host: str, instance: str, plan: str, option: str = "bench_dir") -> None:
        # The variable that messages name.
        self._option = option
        parts = [re.sub(r"[^\w.:-]", "_", part) for part in (host, instance)]
        self.plan = plan
        self.directory = Path(os.path.expanduser(top)).absolute().joinpath(*parts, plan[:12])
        self.raw = self.directory / "raw"

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the directory and hold it for this process. Raises RecordError."""
        try:
            self.raw.mkdir(parents=True, exist_ok=True)
            with locked(str(self.raw / ".lock"), wait=0):
                yield
        except LockedError as exc:
            raise RecordError(
                f"{self._option}: {self.directory} is in use by another benchmark: {exc.holder}; wait for its end"
            ) from exc
        except OSError as exc:
            raise RecordError(f"{self._option}: {self.directory} cannot be used: {exc.strerror or exc}") from exc

    def read(self, step: Step, repeat: int) -> dict[str, Any] | None:
        """Return an earlier measurement with the same parameters; None if there is none, or it is damaged."""
        try:
            found = load_json(self._path(step, repeat).read_text(encoding="utf-8"))
            same = (
                found["schema"] == SCHEMA
                and found["plan"] == self.plan
                and found["workload"] == definition(step.workload)
                and found["measurement"]["requests"] == step.requests
                and isinstance(found["result"]["output_throughput"], (int, float))
            )
        except (OSError, KeyError, TypeError, ValueError):
            return None
        return found if same else None

    def keep(self, step: Step, repeat: int, record: Record) -> None:
        """Write a measurement under its name at once. Raises RecordError."""
        self.write(f"raw/{self._path(step, repeat).name}", json.dumps(record, indent=1, sort_keys=True) + "\n")

    def forget(self) -> None:
        """Remove all measurements. Raises RecordError."""
        try:
            for path in self.raw.glob("*.json"):
                path.unlink()
        except OSError as exc:
            raise RecordError(f"{self._option}: {self.raw} cannot be emptied: {exc.strerror}") from exc

    def write(self, name: str, text: str) -> str:
        """Write a file of the directory in one step and return its path. Raises RecordError."""
        path = str(self.directory / name)
        try:
            publish(path, text)
        except OSError as exc:
            raise RecordError(
                f"{self._option}: {path} cannot be written: {exc.strerror}. What was measured before is kept; make "
                "room and run the playbook again, which measures only the rest"
            ) from exc
        return path

    def record(
        self, step: Step, repeat: int, measurement: Mapping[str, Any], taken: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the record of a measurement; ``taken`` is the result of the module instance_bench."""
        return {
            "schema": SCHEMA,
            "plan": self.plan,
            "workload": definition(step.workload),
            "concurrency": step.concurrency,
            "repeat": repeat,
            "measurement": dict(measurement),
            "result": taken["result"],
            "power": taken.get("power") or {},
            "other_requests": taken.get("other_requests"),
            "slowed": list(taken.get("slowed") or ()),
        }

    def _path(self, step: Step, repeat: int) -> Path:
        return self.raw / f"{step.name}-r{repeat}.json"


def read_summary(option: str, path: str) -> dict[str, Any]:
    """Return the summary in a directory of results. Raises RecordError."""
    directory = Path(os.path.expanduser(path))
    file = directory / SUMMARY if directory.is_dir() else directory
    try:
        found = load_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        below = sorted(str(each.parent) for each in directory.glob(f"*/*/*/{SUMMARY}"))
        below += sorted(str(each.parent) for each in directory.glob(f"*/{SUMMARY}"))
        advice = f"; results are in {', '.join(below[:5])}" if below else ""
        raise RecordError(
            f"{option}: {file} is not there, expected a directory with the results of a benchmark{advice}"
        ) from exc
    except (OSError, ValueError) as exc:
        raise RecordError(f"{option}: {file} cannot be read: {exc}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("results"), list):
        raise RecordError(f"{option}: {file} has no list of results, expected the {SUMMARY} of a benchmark")
    return found
