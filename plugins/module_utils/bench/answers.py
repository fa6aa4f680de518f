# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the answers of benchmark and instance: the result's JSON, the output, models and metrics."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_count
from ..common.kinds import name_kind
from ..instance.metrics import SUCCESS, sums
from ..instance.systemd import parse_properties
from .measurement import BenchError, Measurement

# Printed by the benchmark when its own preparations are over.
STARTED = "Starting main benchmark run"
# Before that it sends the instance one request.
TEST_REQUESTS = 1
FIGURES = ("duration", "output_throughput", "total_output_tokens", "median_ttft_ms", "median_tpot_ms", "p99_itl_ms")

_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit)\b.*|.*\berror: .*")


def read_result(text: str, measurement: Measurement) -> dict[str, Any]:
    """Return the benchmark's result. Raises BenchError where requests failed or a figure is missing."""
    try:
        found = load_json(text)
    except ValueError as exc:
        raise BenchError(f"the result of vllm bench serve is not JSON ({exc})") from exc
    if not isinstance(found, dict):
        raise BenchError(f"the result of vllm bench serve is {name_kind(found)}, expected a mapping")
    completed, failed = found.get("completed"), found.get("failed") or 0
    if failed or completed != measurement.requests:
        raise BenchError(f"of {measurement.requests} requests {completed or 0} were answered and {failed} failed")
    missing = [name for name in FIGURES if not _is_figure(found.get(name))]
    if missing:
        raise BenchError(f"the result of vllm bench serve lacks {', '.join(missing)}")
    if found["duration"] <= 0 or found["total_output_tokens"] <= 0:
        raise BenchError("the result of vllm bench serve has no output tokens")
    return found


def _is_figure(value: Any) -> bool:
    """Return whether a value is a number that a float can hold; JSON may have NaN and 1e999."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e18 < value < 1e18


def explain_output(lines: Sequence[str], most: int = 3) -> str:
    """Return why the benchmark failed: the errors in its output, else its last lines."""
    texts = [line.strip() for line in lines if line.strip()]
    errors = [line for line in texts if _ERROR.match(line)]
    return "; ".join((errors or texts)[-most:]) or "it printed nothing"


def model_length(body: bytes, model: str) -> int | None:
    """Return the longest sequence in tokens that the instance serves ``model`` with, from /v1/models."""
    try:
        entries = load_json(body)["data"]
        return next((read_count(entry["max_model_len"]) for entry in entries if entry.get("id") == model), None)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def finished_requests(metrics: str) -> int | None:
    """Return how many requests an engine has finished since its start, from /metrics; None where unknown."""
    total = sums(metrics, (SUCCESS,)).get(SUCCESS)
    return int(total) if total is not None and total < 1e18 else None


def other_requests(before: int | None, after: int | None, result: Mapping[str, Any]) -> int | None:
    """Return how many requests of others were finished during a measurement; None where it is not known."""
    if before is None or after is None:
        return None
    return max(0, after - before - int(result["completed"]) - TEST_REQUESTS)


def start_seconds(properties: str) -> float | None:
    """Return the seconds from systemd's "Starting" to "Started" of a unit, from ``systemctl show``."""
    found = parse_properties(properties)
    try:
        began, ended = int(found["InactiveExitTimestampMonotonic"]), int(found["ActiveEnterTimestampMonotonic"])
    except (KeyError, ValueError):
        return None
    return round((ended - began) / 1e6, 1) if 0 < began <= ended else None
