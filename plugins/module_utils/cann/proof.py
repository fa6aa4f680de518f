# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether Huawei's driver and firmware on a host are healthy, and what to do where they are not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterator, Mapping

from ..vendor_stack.answers import NOT_FOUND, NOT_INSTALLED, CommandResult
from ..vendor_stack.faults import NO_FAULTS, FaultBook
from ..vendor_stack.model import Host
from ..vendor_stack.proof import DriverKind, Finding, check_builds, check_exit, check_holds, ends_late, known_errors
from .answers import ChipRow, Installed, mismatch, parse_board, parse_cards, parse_mapping, parse_table
from .counters import WELL, faults_of
from .installers import CANN, USER
from .packages import DKMS, is_ours
from .versions import is_older, is_same

# DKMS has one entry for the two dozen modules of the driver; this module creates the device nodes. UNCONFIRMED: that
# every version of the driver uses this name.
MODULE = "drv_davinci_intf_host"
KIND = DriverKind("cann", MODULE, DKMS, is_ours, "ascend")
DCMI = "/usr/local/dcmi"
AGAIN = "set cann_policy to install and run the role cann"

# Error messages of npu-smi, their meaning, and what to do. UNCONFIRMED: the texts are from users' reports; Huawei's
# own page names a missing reboot for -8005.
TOOL_ERRORS = (
    (
        r"(?i)dcmi mod\w+ initialize[d]? failed.*-8005",
        "npu-smi cannot reach the driver: it is not loaded, or driver and firmware were upgraded without a reboot",
        "reboot; if the error returns, check that driver and firmware are compatible",
    ),
    (
        r"(?i)dcmi mod\w+ initialize[d]? failed",
        "npu-smi cannot reach the driver",
        "read why with 'dmesg | grep -i ascend' and in /var/log/ascend_seclog/ascend_install.log",
    ),
    (
        r"(?i)may not be completely installed",
        "the installation of the driver was not completed",
        "let the role cann install it again",
    ),
    (
        r"(?i)libc_sec\.so|libdrvdsmi_host\.so|libdcmi\.so",
        "npu-smi does not find the driver's libraries",
        "check that /usr/local/Ascend/driver/lib64 exists and run ldconfig",
    ),
)
# An error of a chip, of which npu-smi may list several.
_CODE = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?![0-9A-Fa-f])")
# Values of other fields that are not a finding.
NO_PROBLEM = ("OK", "NA")


@dataclass(frozen=True)
class CannRecording:
    """The recorded state of a host, as texts.

    ``chips`` are the PCI addresses of Huawei's chips. ``table`` is the output of ``npu-smi info``, ``cards`` that of
    ``-l``, ``mapping`` that of ``-m``; ``boards`` that of ``-t board`` by NPU, ``health`` that of ``-t health`` by NPU
    and chip, for unhealthy chips. ``nodes`` are the devices in /dev; ``dcmi``: whether that directory exists.
    """

    host: Host
    chips: tuple[str, ...]
    installed: Installed
    table: CommandResult = NOT_INSTALLED
    cards: CommandResult = NOT_INSTALLED
    mapping: CommandResult = NOT_INSTALLED
    boards: Mapping[str, str] = field(default_factory=dict)
    health: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    dcmi: bool = False
    disk: Mapping[str, str] = field(default_factory=dict)
    build_log: str = ""


@dataclass(frozen=True)
class Expected:
    """The requirements of release and site: empty for any version; without ``nodes`` the number of chips decides."""

    driver: str = ""
    cann: str = ""
    toolkit: bool = False
    user: str = USER
    group: str = USER
    hold: bool = True
    nodes: tuple[str, ...] = ()


def check_driver(recording: CannRecording, expected: Expected, book: FaultBook = NO_FAULTS) -> list[Finding]:
    """Return the findings about driver, firmware and CANN, none where all are healthy.

    ``book`` is the catalogue of faults.
    """
    host, disk, installed = recording.host, recording.disk, recording.installed
    return [
        *_files(installed, recording.dcmi),
        *check_builds(KIND, host, disk, recording.build_log),
        *_versions(installed, expected),
        *(check_holds(KIND, host) if expected.hold else ()),
        *_tool(recording),
        *_devices(recording),
        *_health(recording, book),
        *_nodes(recording, expected),
        *_user(installed, expected),
        *_cann(installed, expected),
    ]


def _files(installed: Installed, dcmi: bool) -> Iterator[Finding]:
    """Yield missing files of the installers."""
    if not installed.driver:
        where = "/usr/local/Ascend/driver/version.info"
        yield Finding("no driver of Huawei's is installed", where, "let the role cann install it")
        return
    if not installed.complete:
        yield Finding(
            f"the installation of driver {installed.driver} was not completed",
            "/etc/ascend_install.info",
            "let the role cann install it again; /var/log/ascend_seclog/ascend_install.log shows how far it got",
        )
    if not dcmi:
        yield Finding("the driver's interface for containers is missing", DCMI, "install the driver again")


def _versions(installed: Installed, expected: Expected) -> Iterator[Finding]:
    """Yield drivers and firmware that do not fit each other, the release, or the running versions."""
    where = "driver and firmware"
    if installed.driver and expected.driver and is_older(installed.driver, expected.driver):
        what = f"driver {installed.driver} is installed, the release belongs to {expected.driver}"
        yield Finding(what, where, "set cann_policy to install, or choose a release that works with it")
    wrong = mismatch(installed)
    if wrong:
        yield Finding(wrong, where, f"{AGAIN}; install the firmware first, then the driver")
    for word, on_disk, running in (
        ("driver", installed.driver, installed.running),
        ("firmware", installed.firmware, installed.running_firmware),
    ):
        if on_disk and running and not is_same(on_disk, running):
            yield Finding(f"{word} {running} runs, {on_disk} is installed", where, "reboot")


def _tool(recording: CannRecording) -> Iterator[Finding]:
    """Yield npu-smi's own errors and those that it reports for the whole."""
    answer = recording.table
    known = known_errors(TOOL_ERRORS, answer)[:1]
    for what, action in known:
        yield Finding(what, "npu-smi", action)
    if answer.rc == NOT_FOUND:
        yield Finding("npu-smi is not installed", "npu-smi", "install the driver, which includes the tool")
    elif not known:
        yield from check_exit("npu-smi", answer, KIND.log)
    for npu, text in sorted(recording.boards.items()):
        compatible = parse_board(text).get("Compatibility", "")
        if compatible and compatible.upper() not in NO_PROBLEM:
            yield Finding(f"npu-smi reports for driver and firmware: {compatible}", f"NPU {npu}", AGAIN)


def is_answered(recording: CannRecording) -> bool:
    """Return whether npu-smi lists chips at all; a failing tool proves nothing about them."""
    return recording.table.rc == 0 and recording.mapping.rc == 0


def _devices(recording: CannRecording) -> Iterator[Finding]:
    """Yield differences between the chips of npu-smi and those of PCI."""
    if not is_answered(recording):
        return
    devices, rows, cards = chips_of(recording)
    known = {row.address for row in rows if row.address}
    unlisted = sorted(set(recording.chips) - known) if known else []
    # Both chips of an Atlas 300I Duo show one Bus-Id, whether PCI has one function for the card or two.
    missing = unlisted if len(unlisted) > len(rows) - len(known) else []
    for address in missing:
        yield Finding(
            f"npu-smi lists {len(rows)} of {len(recording.chips)} chips on PCI; the driver is not bound to it",
            f"chip {address}",
            f"read why with 'dmesg | grep {address}'",
        )
    if not missing and len(devices) not in (len(recording.chips), len(rows)):
        yield Finding(
            f"npu-smi maps {len(devices)} chips, PCI has {len(recording.chips)}",
            "npu-smi info -m",
            "read why with 'dmesg | grep -i ascend'",
        )
    counted = sum(card_chips for _npu, card_chips in cards)
    # The count may include the controller of a card.
    if cards and counted < len(devices):
        what = f"npu-smi counts {counted} chips on {len(cards)} cards and maps {len(devices)}"
        yield Finding(what, "npu-smi info -l", "install driver and firmware of one release")


def chips_of(recording: CannRecording) -> tuple[list[str], list[ChipRow], list[tuple[str, int]]]:
    """Return the chips of npu-smi's mapping, those of its table, and its cards with their number of chips."""
    cards = [(card.npu, card.chips) for card in parse_cards(recording.cards.out)]
    return parse_mapping(recording.mapping.out), parse_table(recording.table.out), cards


def _health(recording: CannRecording, book: FaultBook) -> Iterator[Finding]:
    """Yield chips that are not well; a warning where the health service takes none out of service for it."""
    for row in parse_table(recording.table.out):
        if row.health.upper() == WELL:
            continue
        fields = parse_board(recording.health.get(f"{row.npu}/{row.chip}", ""))
        code = next((value for name, value in fields.items() if "ErrorCode" in name and value not in NO_PROBLEM), "")
        words = f"health is {row.health}" + (f", error {code}" if code else "")
        action = f"look it up in Huawei's list of error codes; see 'npu-smi info -t health {' '.join(row.arguments)}'"
        where = f"chip {row.address}" if row.address else f"NPU {row.npu}"
        faults = [book.fault("state", text) for text in faults_of(row.health)]
        faults += [book.fault("event", each.upper()) for each in _CODE.findall(code)]
        yield Finding(words, where, action, later=bool(book.kinds) and not any(map(ends_late, faults)))


def _nodes(recording: CannRecording, expected: Expected) -> Iterator[Finding]:
    """Yield missing devices in /dev, because a chip without one cannot serve."""
    if KIND.module not in recording.host.modules:
        return
    wanted = expected.nodes or (
        *(f"/dev/davinci{index}" for index in range(len(recording.chips))),
        "/dev/davinci_manager",
    )
    missing = [node for node in wanted if node not in recording.nodes]
    if missing:
        action = "read why with 'dmesg | grep -i ascend'; a reboot may be needed"
        yield Finding(f"{len(missing)} of {len(wanted)} device nodes are missing", ", ".join(missing), action)


def _user(installed: Installed, expected: Expected) -> Iterator[Finding]:
    if not installed.group:
        action = f"run 'groupadd {expected.group}; useradd -g {expected.group} -m {expected.user}'"
        yield Finding(f"the user {expected.user}, whose group has access to the chips, does not exist", "user", action)
    elif installed.group != expected.group:
        what = f"user {expected.user} is in group {installed.group}, expected {expected.group}"
        yield Finding(what, "user", f"run 'usermod --gid {expected.group} {expected.user}'")
    if installed.owner and installed.owner != expected.user:
        what = f"the driver was installed for user {installed.owner}, cann_user is {expected.user}"
        yield Finding(what, "/etc/ascend_install.info", f"set cann_user to {installed.owner}")


def _cann(installed: Installed, expected: Expected) -> Iterator[Finding]:
    if not expected.toolkit:
        return
    for part in CANN:
        version = installed.cann.get(part, "")
        if not version:
            yield Finding(f"CANN's {part} is not installed", "/usr/local/Ascend", "let the role cann install it")
        elif expected.cann and not is_same(version, expected.cann):
            what = f"CANN's {part} is {version}, the release belongs to {expected.cann}"
            yield Finding(what, "/usr/local/Ascend", f"{AGAIN}, or choose a release that works with it")
