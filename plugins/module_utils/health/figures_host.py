# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of the health service: chips, faults, the vendor's tool, instances, disks and weights."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from typing import Iterable, Mapping, Sequence

from ..common.files_host import text_of
from ..common.foreign_json import load_json
from ..instance.systemd import Unit
from ..slots.host import Slots
from ..slots.installed_host import Host
from ..slots.state import SlotError
from ..vendor_stack.faults import FaultBook
from .exposition import Labels, Sample, chip_samples
from .instances_host import Instances
from .ledger import Ledger
from .questions_host import Answer

# What services of instances write of themselves: when each of their loops last worked.
WORKED = ("/run/vllm-residents/*/worked", "/run/vllm-group/*/worked")


def worked_figures(
    host: Mapping[str, str], loops: Mapping[str, float], patterns: Sequence[str] = WORKED
) -> list[Sample]:
    """Return when each loop of this service, and of those of instances, last worked."""
    found = {("vllm-health", name): at for name, at in loops.items()}
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
        kind, name = path.split(os.sep)[-3:-1]
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            found.update({(f"{kind}@{name}", loop): float(at) for loop, at in load_json(text_of(path)).items()})
    return [
        Sample("health_worked_seconds", {**host, "service": service, "loop": loop}, at)
        for (service, loop), at in sorted(found.items())
    ]


def free_shares(directories: Sequence[str]) -> dict[str, float]:
    """Return the free share of the disk of each directory that exists, from 0 to 1."""
    found = {}
    for directory in directories:
        if os.path.isdir(directory):
            usage = shutil.disk_usage(directory)
            found[directory] = usage.free / max(1, usage.free + usage.used)
    return found


def tool_figures(labels: Labels, answer: Answer) -> list[Sample]:
    """Return what the vendor's tool said about the chips, and how the tool did; no answer yet has no seconds."""
    chips = answer.counters.chips
    found = chip_samples(labels, chips)
    if answer.seconds:
        found.append(Sample("accel_tool_up", labels.base, float(bool(chips))))
        found.append(Sample("accel_tool_seconds", labels.base, answer.seconds))
    return found


def fault_figures(labels: Labels, ledger: Ledger, book: FaultBook) -> list[Sample]:
    """Return how often each fault was seen on each chip."""
    found = []
    for (fault, chip), count in sorted(ledger.counts.items()):
        kind, _space, code = fault.partition(" ")
        action = book.fault(kind, code).action
        found.append(Sample("accel_faults_total", labels.of_chip(chip, fault=fault, action=action), count))
    return found


def instance_figures(labels: Labels, instances: Instances, name: str, unit: Unit, ledger: Ledger) -> list[Sample]:
    """Return the figures of an instance, and what keeps it out of service."""
    own = labels.of_instance(name)
    marks = ledger.of_instance(name)
    figures = {
        "vllm_instance_healthy": float(not marks),
        "vllm_unit_active": float(unit.is_active),
        "vllm_unit_scaled_down": float(instances.scaled_down(name, unit)),
        "vllm_unit_ready": float(unit.is_active and instances.ready(name)),
        "vllm_unit_start_seconds": unit.start_seconds,
        "vllm_unit_warmup_seconds": instances.warmup_seconds(name),
        "vllm_unit_restarts_total": float(unit.restarts),
    }
    found = [Sample(series, own, value) for series, value in figures.items() if value is not None]
    for mark in marks:
        more = {"fault": mark.fault, "chip": mark.chip, "action": mark.action}
        found.append(Sample("vllm_instance_fault", {**own, **more}, 1.0))
    return found


def drift_figures(labels: Labels, names: Iterable[str], root: str = "") -> list[Sample]:
    """Return whether the files of each instance, or its link to the weights, differ from its last good state.

    An instance without a kept state has no figure. Images are not compared: that would start the container engine.
    """
    found = []
    host = Host(root, lambda _engine, _ref: "")
    for name in names:
        slots = Slots(host, name)
        if not slots.good:
            continue
        try:
            good, installed = slots.read(slots.good).state, host.state(name)
        except (SlotError, OSError):
            continue
        differs = (good.files, good.model) != (installed.files, installed.model)
        found.append(Sample("vllm_instance_drift", labels.of_instance(name), float(differs)))
    return found


def disk_figures(host: Mapping[str, str], directories: Sequence[str]) -> list[Sample]:
    """Return the free share of each disk."""
    return [
        Sample("health_disk_free_ratio", {**host, "directory": directory}, free)
        for directory, free in free_shares(directories).items()
    ]


def weights_figures(host: Mapping[str, str], path: str) -> list[Sample]:
    """Return what the last scrub of the weights has found, from its report (weights-scrub.py of the role weights)."""
    try:
        report = load_json(text_of(path))
        figures = {
            "health_weights_damaged_files": len(report["damaged"]),
            "health_weights_scrubbed_seconds": report["finished"],
        }
    except (ValueError, KeyError, TypeError):
        return []
    return [Sample(name, host, float(value)) for name, value in figures.items() if value is not None]
