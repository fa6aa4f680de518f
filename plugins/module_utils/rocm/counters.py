# SPDX-License-Identifier: GPL-3.0-or-later
"""Error counters, throttling and links of AMD's chips, from amd-smi and the kernel's log.

UNCONFIRMED on hardware: the names are those of amd-smi's own source and of recordings that others published.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Mapping, Sequence

from ..common.foreign_json import find_document
from ..vendor_stack.answers import CommandResult
from ..vendor_stack.counters import (
    ChipCounters,
    CountersAnswer,
    add_log_errors,
    counts_of,
    explain_silence,
    first_number,
    scaled,
)
from .answers import chip_address, parse_messages

BUS = ("amd-smi", "static", "--bus", "--json")
COMMANDS: tuple[Sequence[str], ...] = (("amd-smi", "metric", "--json"), BUS)
LOG_WORD = "amdgpu"

ERRORS = {
    "ECC correctable": ("ecc", "total_correctable_count"),
    "ECC uncorrectable": ("ecc", "total_uncorrectable_count"),
    "ECC deferred": ("ecc", "total_deferred_count"),
    # Also among the totals. A block is listed only where the chip counts its errors.
    "XGMI correctable": ("ecc_blocks", "XGMI_WAFL", "correctable_count"),
    "XGMI uncorrectable": ("ecc_blocks", "XGMI_WAFL", "uncorrectable_count"),
    "PCIe replays": ("pcie", "replay_count"),
    "PCIe replay roll-overs": ("pcie", "replay_roll_over_count"),
    "PCIe NAKs sent": ("pcie", "nak_sent_count"),
    "PCIe NAKs received": ("pcie", "nak_received_count"),
}
SILENT = "the tool has no value of the chip"
SLOWDOWNS = ("prochot", "socket_thermal", "vr_thermal", "hbm_thermal")
CLOCKS = {"sm": "gfx_0", "mem": "mem_0"}
MIB = 1024 * 1024
SENSORS = ("edge", "hotspot", "mem")
# Lines of the kernel's log that mean an error of a chip.
LOG_ERRORS = (
    ("uncorrectable errors in the kernel's log", r"([1-9]\d* (new )?)?[Uu]ncorrectable (hardware )?error"),
    ("GPU resets", r"GPU reset begin"),
    ("ring timeouts", r"ring \S+ timeout"),
)


def parse_counters(answers: Sequence[CommandResult], log: str) -> CountersAnswer:
    """Return the counters of each chip; ``answers`` are the results of COMMANDS, ``log`` the kernel's amdgpu lines."""
    metric, static = answers
    addresses = addresses_of(static)
    chips: dict[str, ChipCounters] = {}
    for entry in _gpus(metric.out):
        chip = _chip(entry, addresses.get(str(entry.get("gpu")), ""))
        # Each part of a divided chip has an entry, of which the first has the values of the chip.
        chips.setdefault(chip.chip, chip)
    if not chips:
        return CountersAnswer(problem=f"amd-smi metric --json reports no chips: {explain_silence(metric)}")
    return CountersAnswer(add_log_errors(list(chips.values()), _log_errors(log)))


def addresses_of(static: CommandResult) -> dict[str, str]:
    """Return the PCI addresses of the chips by amd-smi's numbers, from the result of BUS."""
    found = {str(entry.get("gpu")): _value(entry, "bus", "bdf") for entry in _gpus(static.out)}
    return {number: chip_address(str(bdf)) for number, bdf in found.items() if bdf}


def _gpus(text: str) -> list[Mapping[str, Any]]:
    """Return the entries of a document of amd-smi: a list, or from ROCm 7 on an object with the list in gpu_data."""
    document = find_document(text)
    entries = document.get("gpu_data") if isinstance(document, dict) else document
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _value(entry: Any, *names: str) -> Any:
    """Return a value deep in a document without its unit; None where it is missing."""
    for name in names:
        entry = entry.get(name) if isinstance(entry, Mapping) else None
    return entry.get("value") if isinstance(entry, Mapping) else entry


def _chip(entry: Mapping[str, Any], address: str) -> ChipCounters:
    temperatures = {name: first_number(_value(entry, "temperature", name)) for name in SENSORS}
    active = [name for name in SLOWDOWNS if _value(entry, "throttle", f"{name}_violation_status") == "ACTIVE"]
    clocks = {name: scaled(_value(entry, "clock", key, "clk"), 1e6) for name, key in CLOCKS.items()}
    chip = ChipCounters(
        chip=address or f"gpu {entry.get('gpu')}",
        errors=counts_of({name: _value(entry, *path) for name, path in ERRORS.items()}),
        slowed=counts_of({name: _value(entry, "throttle", f"{name}_accumulated") for name in SLOWDOWNS}),
        slowing=tuple(active),
        capped=_value(entry, "throttle", "ppt_violation_status") == "ACTIVE",
        link_width=int(first_number(_value(entry, "pcie", "width")) or 0),
        celsius={name: value for name, value in temperatures.items() if value is not None},
        watts=first_number(_value(entry, "power", "socket_power")),
        utilization=scaled(_value(entry, "usage", "gfx_activity"), 0.01),
        memory_used=scaled(_value(entry, "mem_usage", "used_vram"), MIB),
        memory_total=scaled(_value(entry, "mem_usage", "total_vram"), MIB),
        # Boards that do not count it have 0.0 for ever.
        joules=first_number(_value(entry, "energy", "total_energy_consumption")) or None,
        hertz={name: value for name, value in clocks.items() if value is not None},
    )
    known = (chip.watts, chip.utilization, chip.memory_used, chip.joules, *chip.celsius.values(), *chip.hertz.values())
    # A chip that no longer answers has N/A everywhere.
    return chip if any(value is not None for value in known) else replace(chip, faults=(SILENT,))


def _log_errors(log: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for address, message in parse_messages(log):
        for name, pattern in LOG_ERRORS:
            if address and re.match(pattern, message):
                counts = found.setdefault(address, {})
                counts[name] = counts.get(name, 0) + 1
    return found
