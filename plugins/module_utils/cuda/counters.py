# SPDX-License-Identifier: GPL-3.0-or-later
"""Error counters, throttling and links of NVIDIA's chips, from ``nvidia-smi`` and the kernel's log."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Mapping, Sequence
from xml.etree import ElementTree

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
from .answers import parse_xids, short_address, split_report

COMMANDS: tuple[Sequence[str], ...] = (("nvidia-smi", "-q", "-x"), ("nvidia-smi", "nvlink", "-e"))
LOG_WORD = "NVRM"

# Counters of errors in the report. Volatile ones count since the driver was loaded, aggregate ones for ever.
ERRORS = {
    "ECC SRAM correctable": "ecc_errors/volatile/sram_correctable",
    "ECC SRAM uncorrectable (parity)": "ecc_errors/volatile/sram_uncorrectable_parity",
    "ECC SRAM uncorrectable (SEC-DED)": "ecc_errors/volatile/sram_uncorrectable_secded",
    "ECC SRAM uncorrectable": "ecc_errors/volatile/sram_uncorrectable",
    "ECC DRAM correctable": "ecc_errors/volatile/dram_correctable",
    "ECC DRAM uncorrectable": "ecc_errors/volatile/dram_uncorrectable",
    "ECC correctable": "ecc_errors/volatile/single_bit/total",  # of chips before Turing, as the next
    "ECC uncorrectable": "ecc_errors/volatile/double_bit/total",
    "remapped rows (correctable)": "remapped_rows/remapped_row_corr",
    "remapped rows (uncorrectable)": "remapped_rows/remapped_row_unc",
    "PCIe replays": "pci/replay_counter",
    "PCIe replay roll-overs": "pci/replay_rollover_counter",
}
LOST = "the chip is lost"
ROW_LOST = "a bad row of memory could not be replaced"
NOT_JOINED = "the chip has not joined the NVLink fabric"
JOINING = "the chip is joining the NVLink fabric"
UNKNOWN_RECOVERY = "the driver asks for a recovery that is not known"
RESET = "the driver asks for a reset of the chip"
REBOOT = "the driver asks for a reboot of the host"
UNHEALTHY = "the NVLink fabric is unhealthy"
LIMITED = "the NVLink fabric has a limited capacity"
ROW_PENDING = "a bad row of memory is replaced at the next reset"
UNREADABLE = "the tool reports an error in place of a value"
# States with the value that is a fault.
FAULTS = (
    ("remapped_rows/remapped_row_failure", "Yes", ROW_LOST),
    ("remapped_rows/remapped_row_pending", "Yes", ROW_PENDING),
    # Chips before Ampere retire pages instead.
    ("retired_pages/pending_blacklist", "Yes", ROW_PENDING),
    ("retired_pages/pending_retirement", "Yes", ROW_PENDING),
    ("ecc_errors/unrepairable_memory", "Yes", "memory that cannot be repaired"),
    ("ecc_errors/channel_repair_pending", "Yes", "the repair of a memory channel is pending"),
    ("ecc_errors/tpc_repair_pending", "Yes", "the repair of a compute unit is pending"),
    ("ecc_errors/aggregate/sram_threshold_exceeded", "Yes", "more SRAM errors than a chip may have"),
    # Newer drivers answer here that the field is deprecated, and have gpu_recovery_action.
    ("gpu_reset_status/reset_required", "Yes", RESET),
    ("gpu_reset_status/drain_and_reset_recommended", "Yes", RESET),
)
# Boards of servers: on others ECC is off as they are sold, or there is none.
BRANDS_WITH_ECC = ("NVIDIA", "Tesla", "")
ECC_OFF = "ECC is off"
# States with what each value means, empty for a healthy one. The last text is for a value that is not listed.
STATES: tuple[tuple[str, Mapping[str, str], str], ...] = (
    (
        "fabric/state",
        {
            "Completed": "",
            "Not Started": NOT_JOINED,
            "In Progress": JOINING,
        },
        UNHEALTHY,
    ),
    ("fabric/status", {"Success": ""}, UNHEALTHY),
    ("fabric/health/summary", {"Healthy": "", "Limited Capacity": LIMITED}, UNHEALTHY),
    # Older drivers have these without a summary.
    ("fabric/health/bandwidth", {"Full": "", "Degraded": LIMITED}, UNREADABLE),
    ("fabric/health/route_recovery_in_progress", {"False": "", "True": LIMITED}, UNREADABLE),
    ("fabric/health/route_unhealthy", {"False": "", "True": UNHEALTHY}, UNREADABLE),
    ("fabric/health/access_timeout_recovery", {"False": "", "True": LIMITED}, UNREADABLE),
    (
        "gpu_recovery_action",
        {
            "None": "",
            "Reset": RESET,
            "GPU Reset": RESET,
            "Drain P2P": RESET,
            "Drain and Reset": RESET,
            "Reboot": REBOOT,
            "Node Reboot": REBOOT,
        },
        UNKNOWN_RECOVERY,
    ),
)
NO_STATE = ("", "N/A", "Not Supported", "[N/A]", "[Not Supported]")
# The other values of FAULTS; one that is in neither is no healthy state.
NO_FAULT = ("no", "requested functionality has been deprecated", *map(str.lower, NO_STATE))
# What a chip that does not work shows in the place of any value.
ERROR_VALUES = (
    (re.compile(r"GPU is lost|fallen off the bus", re.IGNORECASE), LOST),
    (re.compile(r"requires? reset|reset required", re.IGNORECASE), RESET),
    (re.compile(r"ERR!|Unknown Error"), UNREADABLE),
)
# Counters of each NVLink: the first three up to NVLink 4, the others of NVLink 5. Symbol errors and effective errors
# are not among them, because forward error correction makes them normal.
NVLINK_ERRORS = (
    "Replay Errors", "Recovery Errors", "CRC Errors",
    "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors", "Rx General Errors",
    "Local link integrity Errors", "Link recovery failed events",
)  # fmt: skip
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
SLOWED = ("sw_therm_slowdown", "hw_therm_slowdown", "hw_power_brake")
CLOCKS = ("sm", "mem")
MIB = 1024 * 1024
REASONS = "clocks_event_reasons"

# GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-abcdefab-cdef-abdc-abcd-abababababab)
_LINKS_OF = re.compile(r"GPU \d+: .*\(UUID: (\S+)\)")
# Unable to determine the device handle for GPU0000:5D:00.0: GPU is lost.  Reboot the system to recover this GPU
_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU ?((?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
)
# Link 0: Replay Errors: 0
_LINK_ERROR = re.compile(r"\s*Link \d+: (.+): (\d{1,18})\s*")


def parse_counters(answers: Sequence[CommandResult], log: str) -> CountersAnswer:
    """Return the counters of each chip; ``answers`` are the results of COMMANDS, ``log`` the kernel's NVRM lines.

    The second answer may be missing: chips without NVLink have no such counters.
    """
    report, *more = answers
    links = _nvlink_errors(more[0].out if more else "")
    gpus, messages = split_report(report.out)
    lost = _lost_chips(messages + report.err)
    if not gpus and not lost:
        return CountersAnswer(problem=f"nvidia-smi -q -x reports no chips: {explain_silence(report)}")
    chips = []
    for gpu in gpus:
        chip = _chip(gpu)
        chips.append(replace(chip, errors={**chip.errors, **links.get((gpu.findtext("uuid") or "").strip(), {})}))
    listed = {chip.chip for chip in chips}
    chips += [chip for chip in lost if chip.chip not in listed]
    return CountersAnswer(add_log_errors(chips, _xids(log)))


def _chip(gpu: ElementTree.Element) -> ChipCounters:
    def text(path: str) -> str:
        return (gpu.findtext(path) or "").strip()

    def number(path: str) -> int:
        return int(first_number(text(path)) or 0)

    def power(*names: str) -> float | None:
        # A100 and T4 have no average; older drivers have one figure, before 535 in another element.
        values = (first_number(text(f"{part}power_readings/{name}")) for part in ("gpu_", "") for name in names)
        return next((value for value in values if value is not None), None)

    def reason(name: str) -> bool:
        path = f"{REASONS}/{name}"
        # Drivers before 535 say throttle.
        return "Active" in (text(path), text(path.replace("clocks_event", "clocks_throttle")))

    link = "pci/pci_gpu_link_info"
    temperatures = {name: first_number(text(f"temperature/{name}_temp")) for name in ("gpu", "memory")}
    clocks = {name: scaled(text(f"clocks/{name}_clock"), 1e6) for name in CLOCKS}
    return ChipCounters(
        chip=short_address(gpu.get("id", "")),
        errors=counts_of({name: text(path) for name, path in ERRORS.items()}),
        slowed=counts_of({name: text(f"{REASONS}_counters/{REASONS}_counters_{name}") for name in SLOWED}),
        slowing=tuple(name for name in SLOWDOWNS if reason(f"clocks_event_reason_{name}")),
        capped=reason("clocks_event_reason_sw_power_cap"),
        faults=faults_of(gpu),
        link_width=number(f"{link}/link_widths/current_link_width"),
        link_width_max=number(f"{link}/link_widths/max_link_width"),
        link_gen=number(f"{link}/pcie_gen/current_link_gen"),
        link_gen_max=number(f"{link}/pcie_gen/max_link_gen"),
        celsius={name: value for name, value in temperatures.items() if value is not None},
        watts=power("average_power_draw", "instant_power_draw", "power_draw"),
        watts_limit=power("current_power_limit", "enforced_power_limit"),
        utilization=scaled(text("utilization/gpu_util"), 0.01),
        memory_used=scaled(text("fb_memory_usage/used"), MIB),
        memory_total=scaled(text("fb_memory_usage/total"), MIB),
        hertz={name: value for name, value in clocks.items() if value is not None},
    )


def faults_of(gpu: ElementTree.Element) -> tuple[str, ...]:
    """Return the states of a chip that are faults; a value that is not known counts as one."""

    def text(path: str) -> str:
        return (gpu.findtext(path) or "").strip()

    states = [(text(path).lower(), bad.lower(), what) for path, bad, what in FAULTS]
    found = [what if value == bad else UNREADABLE for value, bad, what in states if value not in NO_FAULT]
    ecc_off = text("ecc_mode/current_ecc").lower() == "disabled"
    found += [ECC_OFF] * (ecc_off and text("product_brand") in BRANDS_WITH_ECC)
    found += [known.get(text(path), unlisted) for path, known, unlisted in STATES if text(path) not in NO_STATE]
    values = [(element.text or "") for element in gpu.iter() if len(element) == 0]
    found += [what for pattern, what in ERROR_VALUES if any(pattern.search(value) for value in values)]
    return tuple(dict.fromkeys(what for what in found if what))


def _lost_chips(text: str) -> list[ChipCounters]:
    """Return the chips that nvidia-smi names in an error message because they do not answer."""
    names = dict.fromkeys(short_address(name) for name in _NO_HANDLE.findall(text))
    return [ChipCounters(name, faults=(LOST,)) for name in names]


def _nvlink_errors(text: str) -> dict[str, dict[str, int]]:
    """Return the sums over the links of each chip, by its UUID."""
    found: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for line in text.splitlines():
        chip, link = _LINKS_OF.match(line), _LINK_ERROR.fullmatch(line)
        if chip:
            counts = found.setdefault(chip[1], {})
        elif link and link[1] in NVLINK_ERRORS:
            name = f"NVLink {link[1]}"
            counts[name] = counts.get(name, 0) + int(link[2])
    return found


def _xids(log: str) -> dict[str, dict[str, int]]:
    """Return how often the kernel's log reports each Xid of each chip."""
    found: dict[str, dict[str, int]] = {}
    for (address, number), count in Counter((xid.address, xid.number) for xid in parse_xids(log)).items():
        found.setdefault(address, {})[f"Xid {number}"] = count
    return found
