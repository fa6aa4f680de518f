# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for the output of npu-smi and for the files of Huawei's installers.

npu-smi prints only text. Its format differs by version: columns separated by blanks, other field names, units beside
values.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, NamedTuple

from ..common.foreign_numbers import read_count
from .installers import NNAL, OPS, TOOLKIT
from .versions import is_same, takes

# "| 0     910B4               | OK            | 86.0        40  ..."; of a 950 "| 0      | Ascend950PR      | OK  ...".
_FIRST_ROW = re.compile(r"\|\s*(\d+)\s+(?:\|\s*)?([^\s|]+)\s*\|\s*([A-Za-z]\w*)\s*\|(?:\s*([^\s|]+)\s+([^\s|]+)\s)?")
# "| 0                         | 0000:C1:00.0  | 0           4565 / 15137 ..."; "| 0     1 " or "| 0     NA " with the
# device; of a 950 "|        |                  | NA  ...". Behind the bus id: use, memory, HBM if there is any.
_SECOND_ROW = re.compile(
    r"\|\s*(?:(\d+)(?:\s+(?:\d+|NA))?\s*)?\|(?:\s*\|)?\s*([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|NA)\s*\|"
    r"(?:\s*(\d+)\s+(\d+)\s*/\s*(\d+)(?:\s+(\d+)\s*/\s*(\d+))?)?"
)
# The NPU of each row of ``npu-smi info -m`` with a number on the host, which controllers of cards do not have.
_MAPPED = re.compile(r"^(?!.*\bMcu[ \t\r]*$)[ \t]*(\d+)(?:[ \t]+\d+){2}[ \t].*[A-Za-z]", re.MULTILINE)
# Behind the chips: the processes on them, whose names any user of the chips chooses.
_PROCESSES = re.compile(r"^.*\bProcess id\b", re.IGNORECASE | re.MULTILINE)
_TABLE_VERSION = re.compile(r"\|\s*npu-smi\s+(\S+)\s+Version:\s*(\S+)")


@dataclass(frozen=True)
class Card:
    """One NPU of ``npu-smi info -l``: its number there, which may be large, and its number of chips."""

    npu: str
    chips: int


@dataclass(frozen=True)
class ChipRow:
    """Two rows of the table of ``npu-smi info``: one chip, its health and its PCI address.

    ``chip`` is empty for a 950, which has one chip on each NPU and no number for it, ``address`` for a 950DT.
    """

    npu: str
    chip: str
    name: str
    health: str
    address: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of ``npu-smi info -t`` that choose the chip; npu-smi of a 950 takes no -c."""
        return ("-i", self.npu, *(("-c", self.chip) if self.chip else ()))


class ChipFigures(NamedTuple):
    """The figures in the same rows, as they are written there: NA, a dash or None where there is none."""

    watts: str | None
    celsius: str | None
    busy: str | None
    used: str | None
    total: str | None


@dataclass(frozen=True)
class Installed:
    """The remains of Huawei's installers on a host; empty values where there are none.

    ``complete``: whether the driver's installation finished; ``owner``: the user it was made for. ``driver_firmwares``
    are the firmware versions that the driver accepts, ``firmware_drivers`` the drivers that the firmware accepts;
    ``hdk`` is the release that the firmware came with. ``running`` and ``running_firmware`` are npu-smi's versions.
    ``group`` is that of the site's user, empty without such a user; ``has_group``: whether the site's group exists.
    ``cann`` has the version of each part of CANN.
    """

    driver: str = ""
    complete: bool = False
    owner: str = ""
    driver_firmwares: str = ""
    firmware: str = ""
    firmware_drivers: str = ""
    hdk: str = ""
    running: str = ""
    running_firmware: str = ""
    group: str = ""
    has_group: bool = False
    cann: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, JSON-serialisable."""
        return asdict(self)


def parse_cards(text: str) -> list[Card]:
    """Return the cards of ``npu-smi info -l``."""
    fields = _fields(text)
    found = [read_count(value) for name, value in fields if name == "Chip Count"]
    counts = [count for count in found if count is not None]
    numbers = [value for name, value in fields if name == "NPU ID"]
    # Versions that omit the count have one chip on each NPU.
    return [Card(number, counts[index] if index < len(counts) else 1) for index, number in enumerate(numbers)]


def parse_mapping(text: str) -> list[str]:
    """Return the NPU of each chip of ``npu-smi info -m``, without the controllers of the cards."""
    return _MAPPED.findall(text)


def parse_table(text: str) -> list[ChipRow]:
    """Return the chips of ``npu-smi info``; nothing for any other text."""
    return [row for row, _figures in parse_figures(text)]


def parse_figures(text: str) -> list[tuple[ChipRow, ChipFigures]]:
    """Return the chips of ``npu-smi info`` with their figures. The row of a card's first chip has the card's power."""
    rows = []
    first: re.Match[str] | None = None
    for line in _PROCESSES.split(text, maxsplit=1)[0].splitlines():
        second = _SECOND_ROW.match(line)
        if second and first:
            chip, address, busy, *memory = second.groups()
            used, total = memory[2:] if memory[3] else memory[:2]
            row = ChipRow(first[1], chip or "", first[2], first[3], "" if address == "NA" else address.lower())
            rows.append((row, ChipFigures(first[4], first[5], busy, used, total)))
            first = None
        else:
            first = _FIRST_ROW.match(line) or first
    return rows


def parse_table_version(text: str) -> str:
    """Return the driver's version in the head of that table, empty where it is missing."""
    found = _TABLE_VERSION.search(text)
    return found.group(2) if found else ""


def parse_board(text: str) -> dict[str, str]:
    """Return the fields of ``npu-smi info -t board`` and similar output, by their names without blanks and brackets.

    The spelling differs by version: ``PCIe Bus Info`` and ``PCIeBusInfo``.
    """
    return {re.sub(r"[\s()%/]", "", name): value for name, value in reversed(_fields(text))}


def parse_info(text: str) -> dict[str, str]:
    """Return the fields of a file of Huawei's installers, ``NAME=VALUE`` by line; the last of each name counts."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _equals, value in pairs}


def parse_cann_version(text: str) -> str:
    """Return the version in ``ascend_toolkit_install.info`` or similar, or in ``version.cfg``; empty for none.

    ``version.cfg`` has lines like ``runtime_running_version=[7.5.0.1.129:8.0.RC3]``: the second part is CANN's.
    """
    fields = parse_info(text)
    if fields.get("version"):
        return fields["version"]
    found = re.search(r"_running_version=\[[^\]:]+:([^\]]+)\]", text)
    return found.group(1) if found else ""


def _fields(text: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return [(name.strip(), value.strip()) for name, _colon, value in pairs]


def installed_of(files: Mapping[str, str], table: str, board: str, cann: Mapping[str, str]) -> Installed:
    """Return the values in the installers' files (``install``, ``driver``, ``firmware`` of ``files``) and of npu-smi.

    ``cann`` has the text of each part's file.
    """
    install, driver, firmware = (parse_info(files.get(name, "")) for name in ("install", "driver", "firmware"))
    says = parse_board(board)
    return Installed(
        driver=driver.get("Version", ""),
        complete=install.get("Driver_Install_Status", "") == "complete",
        owner=install.get("UserName", ""),
        driver_firmwares=driver.get("compatible_version_fw", ""),
        firmware=firmware.get("Version", ""),
        firmware_drivers=firmware.get("compatible_version_drv", ""),
        hdk=firmware.get("package_version", ""),
        running=says.get("SoftwareVersion", "") or parse_table_version(table),
        running_firmware=says.get("FirmwareVersion", ""),
        cann={
            part: version
            for part in (TOOLKIT, OPS, NNAL)
            for version in [parse_cann_version(cann.get(part, ""))]
            if version
        },
    )


def mismatch(installed: Installed) -> str:
    """Return why driver and firmware are incompatible, empty where they fit or nothing states it.

    The newer of the two lists the older one, so one matching statement is enough. UNCONFIRMED: that rule.
    """
    firmware = installed.firmware or installed.running_firmware
    if not installed.driver or not firmware:
        return ""
    statements = [
        (installed.driver_firmwares, firmware, f"driver {installed.driver} takes firmware"),
        (installed.firmware_drivers, installed.driver, f"firmware {firmware} takes driver"),
    ]
    ranges = [(text, version, words) for text, version, words in statements if text]
    if any(takes(text, version) for text, version, _words in ranges):
        return ""
    if ranges:
        words = ", ".join(f"{words} {text}" for text, _version, words in ranges)
        return f"driver {installed.driver} and firmware {firmware} do not fit: {words}"
    if installed.hdk and not is_same(installed.hdk, installed.driver):
        return f"driver {installed.driver} and firmware {firmware} of {installed.hdk} do not fit"
    return ""
