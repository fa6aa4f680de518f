# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the measurements of a benchmark one after the other, except those that an earlier run has taken."""

import hashlib
import random
from dataclasses import asdict
from typing import Any, Callable, Mapping, Sequence

from ...module_utils.bench.measurement import LARGEST_SEED, Measurement
from .records import Records
from .summary import Record, figures_line
from .workloads import Step

# Takes a measurement on the host and returns the result of instance_bench; its exceptions end the benchmark.
Measure = Callable[[Measurement], Mapping[str, Any]]
# Shows a line to people.
Show = Callable[[str], None]


class Seeds:
    """Seeds for prompts. Without a base each one is new, so that no prompt is in the prefix cache of the instance."""

    def __init__(self, base: int | None = None) -> None:
        self._base = base
        self._system = random.SystemRandom()

    def seed(self, name: str) -> int:
        """Return the seed of the measurement with this name; with a base it is always the same one."""
        if self._base is None:
            return self._system.randrange(LARGEST_SEED)
        return int(hashlib.sha256(f"{self._base} {name}".encode()).hexdigest()[:7], 16)


def run_steps(
    steps: Sequence[Step], repeats: int, records: Records, measure: Measure, show: Show, seeds: Seeds
) -> list[Record]:
    """Return the records of all repeats of all steps. Missing ones are measured, after a warm-up, and saved."""
    found: list[Record] = []
    total, number = len(steps) * repeats, 0
    for step in steps:
        known = {repeat: records.read(step, repeat) for repeat in range(1, repeats + 1)}
        what = f"{step.workload.name}, {step.concurrency} at a time"
        if None in known.values():
            show(f"{what}: warm-up")
            measure(step.warm_up(seeds.seed(f"{step.name} warm-up")))
        for repeat, record in known.items():
            number += 1
            if record is None:
                measurement = step.measurement(seeds.seed(f"{step.name} {repeat}"))
                record = records.record(step, repeat, asdict(measurement), measure(measurement))
                records.keep(step, repeat, record)
                ending = ""
            else:
                ending = " (measured earlier)"
            show(f"[{number}/{total}] {what}, run {repeat} of {repeats}: {figures_line(record)}{ending}")
            found.append(record)
    return found
