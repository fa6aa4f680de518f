# SPDX-License-Identifier: GPL-3.0-or-later
"""The short benchmark of an acceptance: what an instance is asked, and which of its figures are kept."""

from typing import Any, Mapping

from ...module_utils.bench.measurement import RANDOM, Measurement
from ..bench.summary import FIGURES
from ..bench.workloads import Amount, Step, Workload, requests_of, shortened

# Enough to use every part of a server, and done in seconds; bench.yml measures how fast an instance is.
CHIP, CHIP_CONCURRENCY = Workload("short", RANDOM, 1024, 256), 16
PROCESSOR, PROCESSOR_CONCURRENCY = Workload("short", RANDOM, 64, 16), 2
# Until one measurement must be finished. A model that is slower than that does not serve 16 users either.
SECONDS = 300.0


def short_step(stack: str, longest: int | None) -> Step:
    """Return what an instance on hardware of a stack is asked; ``longest`` is its max-model-len, None if unknown.

    Raises WorkloadError where that leaves no room for a prompt and an answer.
    """
    workload, concurrency = (PROCESSOR, PROCESSOR_CONCURRENCY) if stack == "cpu" else (CHIP, CHIP_CONCURRENCY)
    if longest is not None and workload.tokens > longest:
        workload = shortened(workload, longest)
    return Step(workload, concurrency, requests_of(workload, concurrency, Amount()))


def busy(info: Mapping[str, Any]) -> str:
    """Return why an instance is not measured now, empty where it is idle; ``info`` is of instance_bench_info."""
    running, waiting = info["running"], info["waiting"]
    if not running + waiting:
        return ""
    return f"it has {running} running and {waiting} waiting requests; drain the host first (playbooks/drain.yml)"


def short_figures(measurement: Measurement, result: Mapping[str, Any]) -> dict[str, float]:
    """Return what is kept of a measurement: its size, and the figures in tokens per second and milliseconds."""
    size = ("concurrency", "requests", "input_tokens", "output_tokens")
    figures = {name: round(float(result[key]), digits) for name, (key, digits) in FIGURES.items()}
    return {**{name: getattr(measurement, name) for name in size}, **figures}
