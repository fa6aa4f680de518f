# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for the output of nvidia-smi and the kernel about NVIDIA's driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from ..common.foreign_numbers import read_count

# The fields of nvidia-smi --query-gpu, in the order of GpuAnswer.
QUERY = (
    "index",
    "name",
    "uuid",
    "compute_cap",
    "memory.total",
    "driver_version",
    "mig.mode.current",
    "pci.bus_id",
    "pci.device_id",
)
_XID = re.compile(
    r"^NVRM: Xid \((?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
    r"(?:[ /]GPU-I:[0-9a-fA-F]{1,4})?\): ([0-9]{1,9}),? *(.*)",
    re.MULTILINE,
)
# The report, without the messages before and behind it.
_DOCUMENT = re.compile(r"<nvidia_smi_log>.*</nvidia_smi_log>", re.DOTALL)
# Any user of the chips chooses a process's name, in which nvidia-smi escapes nothing; only the last end is its own.
_NAME = re.compile(r"<process_name>[^\n]*")
_PROCESSES = re.compile(r"<(?:accounted_)?processes>.*</(?:accounted_)?processes>", re.DOTALL)
_CHIP = "<gpu id="
_NO_VALUE = ("", "N/A", "[N/A]", "None", "[Not Supported]")


@dataclass(frozen=True)
class GpuAnswer:
    """One line of nvidia-smi's query, unchanged except ``address``, which is the kernel's form of the bus id."""

    index: str
    name: str
    uuid: str
    compute_capability: str
    memory: str
    driver_version: str
    mig: str
    address: str
    device_id: str

    @property
    def broken(self) -> tuple[str, ...]:
        """The values that are errors: ERR!, [Unknown Error], [GPU requires reset]."""
        values = (self.name, self.uuid, self.compute_capability, self.memory, self.driver_version, self.mig)
        return tuple(value for value in values if re.search(r"ERR!|error|reset|lost", value, re.IGNORECASE))


@dataclass(frozen=True)
class GpuReport:
    """The state of one chip in ``nvidia-smi -q -x``; missing values are empty.

    ``mig``, ``mig_pending`` and ``persistence`` are Enabled or Disabled; ``fabric`` and ``fabric_status`` are those of
    NVLink behind switches (Completed, Success), ``fabric_health`` is its summary; ``recovery`` is the action that the
    driver requests. ``mig_memory`` is the MiB of each MIG instance, 0 where unknown. ``virtual`` is true for a vGPU,
    the share of a chip that a hypervisor gives to this guest; ``licence`` is the state of its licence.
    """

    address: str
    mig: str
    mig_pending: str
    persistence: str
    fabric: str
    fabric_status: str
    fabric_health: str
    recovery: str
    remapping_failed: bool
    mig_memory: tuple[int, ...] = ()
    virtual: bool = False
    licence: str = ""


@dataclass(frozen=True)
class Xid:
    """A line of the kernel's log in which the driver reports an error of a chip."""

    address: str
    number: int
    text: str


def short_address(bus_id: str) -> str:
    """Return the kernel's form of a bus id: 0000:00:06.0 of 00000000:00:06.0."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus_id.strip().lower())


def parse_query(text: str) -> list[GpuAnswer]:
    """Return the chips that nvidia-smi lists. Lines in another form, headers and errors, are ignored."""
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines()]
    full = [row for row in rows if len(row) == len(QUERY) and read_count(row[0]) is not None]
    return [GpuAnswer(*(short_address(value) if ":" in value else value for value in row)) for row in full]


def parse_report(text: str) -> list[GpuReport]:
    """Return the state of each chip of ``nvidia-smi -q -x``; empty for any other text."""
    return [_report(gpu) for gpu in split_report(text)[0]]


def split_report(text: str) -> tuple[list[ElementTree.Element], str]:
    """Return the chips in ``nvidia-smi -q -x``, without the processes on them, and the messages beside the document."""
    document = _DOCUMENT.search(text)
    if not document:
        return [], text
    messages = text[: document.start()] + text[document.end() :]
    chips = [_PROCESSES.sub("", part) for part in _NAME.sub("", document.group()).split(_CHIP)]
    try:
        root = ElementTree.fromstring(_CHIP.join(chips))  # noqa: S314 - of a tool
    except ElementTree.ParseError:
        return [], messages
    return root.findall("gpu"), messages


def _report(gpu: ElementTree.Element) -> GpuReport:
    def value(path: str) -> str:
        found = (gpu.findtext(path) or "").strip()
        return "" if found in _NO_VALUE else found

    return GpuReport(
        short_address(gpu.get("id", "")),
        value("mig_mode/current_mig"),
        value("mig_mode/pending_mig"),
        value("persistence_mode"),
        value("fabric/state"),
        value("fabric/status"),
        value("fabric/health/summary"),
        value("gpu_recovery_action"),
        value("remapped_rows/remapped_row_failure") == "Yes",
        tuple(
            read_count((part.findtext("fb_memory_usage/total") or "").partition(" ")[0]) or 0
            for part in gpu.findall("mig_devices/mig_device")
        ),
        value("gpu_virtualization_mode/virtualization_mode") == "VGPU",
        value("vgpu_software_licensed_product/license_status"),
    )


def parse_xids(text: str) -> list[Xid]:
    """Return the errors of chips in the kernel's log, in their order."""
    found = []
    for bus_id, number, words in _XID.findall(text):
        address = bus_id.lower() if "." in bus_id else f"{bus_id.lower()}.0"
        found.append(Xid(short_address(address), int(number), words.strip()))
    return found
