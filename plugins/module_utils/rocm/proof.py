# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of AMD's driver: a recording of the host in, findings out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterator, Mapping

from ..accelerator.partitions import WHOLE, is_same, partition_text
from ..vendor_stack.answers import NOT_FOUND, NOT_INSTALLED, CommandResult, parse_module_info
from ..vendor_stack.faults import NO_FAULTS, FaultBook
from ..vendor_stack.model import Host
from ..vendor_stack.proof import (
    DriverKind,
    Finding,
    check_builds,
    check_events,
    check_exit,
    check_holds,
    check_log,
    check_minimum,
    known_errors,
    loaded_version,
)
from .answers import GpuAnswer, parse_amd_smi, parse_messages, parse_rocm_smi
from .chips import RocmHostState
from .error_records import ErrorRecord, standing_errors
from .packages import DRIVER, is_driver

KIND = DriverKind("rocm", "amdgpu", "amdgpu", is_driver, "amdgpu")
KFD = "/dev/kfd"
GROUP = "render"
RESET = "amd-smi reset --gpureset"
# Error messages of amd-smi and rocm-smi, their meaning, and what to do. rocm-smi exits with 0 even on errors.
TOOL_ERRORS = (
    (
        r"[Dd]rivers? not (initialized|loaded)|amdgpu not found in modules|ROCk module is NOT loaded",
        "no driver is loaded",
        "run 'modprobe amdgpu' and read the kernel's messages with 'dmesg | grep -i amdgpu'",
    ),
    (
        r"NO_PERM|[Pp]ermission denied",
        "it has no permission to open the chips",
        "run it as root, or put the user into the groups render and video",
    ),
    (
        r"Unable to detect any GPU|No (AMD )?GPUs? (were )?(found|detected)",
        "the driver is loaded, but bound to no chip",
        "read why with 'dmesg | grep -i amdgpu'; a chip may need a newer driver or its firmware",
    ),
)
# Kernel messages about unusable chips. UNCONFIRMED on hardware: from the driver's source and public reports.
LOG_ERRORS = (
    (
        r"VGACON disables amdgpu|[\w .:,]{0,80}nomodeset",
        "amdgpu gives up because the kernel was started with nomodeset",
        "remove nomodeset from /etc/default/grub, rebuild GRUB's configuration and reboot",
    ),
    (
        r"Direct firmware load for amdgpu/\S+ failed",
        "firmware of a chip is missing",
        "install amdgpu-dkms-firmware, or the distribution's firmware for AMD's chips, then reboot",
    ),
    (
        r"hw_init of IP block <[^>]+> failed|Fatal error during GPU init",
        "the driver could not start a chip",
        "upgrade the driver and the card's firmware; if the error remains, switch the machine off and on",
    ),
)


@dataclass(frozen=True)
class Node:
    """A device node: the name of its group and its permissions."""

    path: str
    group: str
    mode: int


@dataclass(frozen=True)
class RocmRecording:
    """The recorded state of a host, as texts.

    ``chips`` are the PCI addresses of AMD's chips, ``bound`` the driver of each by address. ``disk`` is modinfo's
    output by kernel, ``build_log`` the end of the log of a failed build. ``wants_tools``: whether the site installs
    ROCm in user space; otherwise a missing tool is not a finding. ``partitions`` are the modes of the chips that the
    driver can divide, such as CPX and NPS4, by address; ``partition`` are those that the plans are for.
    ``errors`` are the error records that the driver keeps, ``resets`` has when each chip was last reset, in seconds
    since the epoch.
    """

    host: Host
    chips: tuple[str, ...]
    shown: RocmHostState = field(default_factory=RocmHostState)
    kfd: tuple[GpuAnswer, ...] = ()
    amd_smi: CommandResult = NOT_INSTALLED
    rocm_smi: CommandResult = NOT_INSTALLED
    bound: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    disk: Mapping[str, str] = field(default_factory=dict)
    kernel_log: str = ""
    errors: tuple[ErrorRecord, ...] = ()
    resets: Mapping[str, float] = field(default_factory=dict)
    build_log: str = ""
    wants_tools: bool = False
    partitions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    partition: str = WHOLE


def check_driver(
    recording: RocmRecording, minimum: str = "", hold: bool = True, book: FaultBook = NO_FAULTS
) -> list[Finding]:
    """Return the findings about the driver, none where it is healthy. ``book`` is the catalogue of faults.

    ``minimum`` is the oldest driver that the release and the chips support, empty for any.
    """
    host, disk = recording.host, _of_amds(recording)
    return [
        *check_builds(KIND, host, disk, recording.build_log),
        *check_minimum(KIND, host, minimum),
        *_own_driver(host, minimum),
        *(check_holds(KIND, host) if hold else ()),
        *_blacklists(recording.shown),
        *_tools(recording),
        *_chips(recording),
        *_partitions(recording.partitions, recording.partition),
        *_nodes(recording),
        *_log(recording),
        *check_log(book, recording.kernel_log, RESET),
        *check_events(standing_errors(book, recording.errors, recording.resets), RESET, "error records"),
    ]


def listed(recording: RocmRecording) -> tuple[str, list[GpuAnswer]]:
    """Return the usable chips and the source of that list: amd-smi, else rocm-smi, else the kernel itself."""
    for tool, answer, found in (
        ("amd-smi", recording.amd_smi, parse_amd_smi(recording.amd_smi.out)),
        ("rocm-smi", recording.rocm_smi, parse_rocm_smi(recording.rocm_smi.out)),
    ):
        if answer.rc == 0 and found:
            return tool, found
    return "the kernel (KFD)", list(recording.kfd)


def _of_amds(recording: RocmRecording) -> Mapping[str, str]:
    """Return modinfo's output by kernel; where AMD's driver is installed, the kernel's own modules do not count.

    A kernel without a build of AMD's module would load its own one, which has no version.
    """
    if DRIVER not in (*recording.host.packages, *recording.host.unfinished):
        return recording.disk
    infos = ((kernel, text, parse_module_info(text)) for kernel, text in recording.disk.items())
    return {kernel: text for kernel, text, info in infos if info and info.version}


def _own_driver(host: Host, minimum: str) -> Iterator[Finding]:
    """Yield that the kernel's own driver has no version to compare with the release's minimum."""
    if minimum and KIND.module in host.modules and not loaded_version(KIND, host):
        yield Finding(
            f"the kernel's own amdgpu is loaded, which has no version, so it is unknown whether it is {minimum} or "
            "newer",
            KIND.where,
            "let the role rocm install AMD's driver (rocm_source vendor), or set rocm_source to distro to accept it",
        )


def _blacklists(shown: RocmHostState) -> Iterator[Finding]:
    for entry in shown.blacklists:
        yield Finding(
            f"amdgpu is prevented from loading at boot: {entry.text}",
            entry.where,
            "remove that, rebuild the initramfs and reboot; rocm_blacklist_remove: true does this for files",
        )


def _tools(recording: RocmRecording) -> Iterator[Finding]:
    """Yield errors of amd-smi, or of rocm-smi where amd-smi is missing."""
    tool, answer = "amd-smi", recording.amd_smi
    if answer.rc == NOT_FOUND and recording.rocm_smi.rc != NOT_FOUND:
        tool, answer = "rocm-smi", recording.rocm_smi
    if answer.rc == NOT_FOUND:
        if recording.wants_tools:
            yield Finding("neither amd-smi nor rocm-smi is installed", "amd-smi", "install ROCm's tools")
        return
    known = known_errors(TOOL_ERRORS, answer)
    # The other errors follow from the first.
    for what, action in known[:1]:
        yield Finding(f"{tool} fails: {what}", tool, action)
    if not known:
        yield from check_exit(tool, answer, KIND.log)


def _chips(recording: RocmRecording) -> Iterator[Finding]:
    """Yield unusable chips on PCI; nothing without a loaded driver, which is a separate finding."""
    if KIND.module not in recording.host.modules:
        return
    who, found = listed(recording)
    usable = {gpu.address for gpu in found}
    driven = {gpu.address for gpu in recording.kfd}
    ours = [address for address in recording.chips if address in usable]
    for address in sorted(set(recording.chips) - usable):
        why, action = "the driver is not bound to it", f"read why with 'dmesg | grep {address}'"
        other = recording.bound.get(address, "")
        if other not in ("", KIND.module):
            why = f"the driver {other} is bound to it"
            action = f"find out what bound it (a virtual machine?), or unbind it from {other} and reboot"
        elif address in driven:
            why = "the driver is bound to it"
        yield Finding(
            f"{who} lists {len(ours)} of {len(recording.chips)} chips on PCI; {why}", f"chip {address}", action
        )


def _partitions(partitions: Mapping[str, tuple[str, str]], planned: str) -> Iterator[Finding]:
    """Yield chips in other modes than planned: each part is a separate device with a share of the memory."""
    for address, modes in sorted(partitions.items()):
        found = partition_text(*modes)
        if found and not is_same(planned, found):
            plans = "whole chips" if planned == WHOLE else planned
            compute, _slash, memory = planned.partition("/")
            # The kernel only notes the request for another mode of memory until the driver is loaded again.
            first = f"write {memory} to current_memory_partition of each chip and load amdgpu again, then "
            yield Finding(
                f"it is in {found}, and plans are for {plans}: programs see other devices than planned",
                f"chip {address}",
                f"while nothing uses the chips, {first if memory else ''}write {compute} to "
                f"current_compute_partition (in /sys/bus/pci/devices/{address}), or set accelerator_partition of the "
                f"host to {found}",
            )


def _nodes(recording: RocmRecording) -> Iterator[Finding]:
    """Yield device nodes that are missing, or that the group render may not open."""
    if KIND.module not in recording.host.modules or not recording.kfd:
        return
    nodes = {node.path: node for node in recording.nodes}
    if KFD not in nodes:
        action = "run 'udevadm trigger', then check 'dmesg | grep -i kfd'"
        yield Finding("the driver has chips, but there is no device node for them", KFD, action)
    renders = [path for path in nodes if path.startswith("/dev/dri/renderD")]
    if len(renders) < len(recording.kfd):
        what = f"there are {len(renders)} render nodes for {len(recording.kfd)} chips"
        yield Finding(what, "/dev/dri/renderD*", "run 'udevadm trigger', then check 'dmesg | grep -i drm'")
    for path, node in sorted(nodes.items()):
        if node.mode & 0o006 != 0o006 and not (node.group == GROUP and node.mode & 0o060 == 0o060):
            yield Finding(
                f"its group is {node.group} with mode {node.mode:04o}: containers and services get access by the group "
                f"{GROUP}",
                path,
                f"see that the group {GROUP} exists, then run 'udevadm control --reload' and 'udevadm trigger'",
            )


def _log(recording: RocmRecording) -> Iterator[Finding]:
    """Yield the kernel's messages about unusable chips, the last of each kind.

    The log keeps what was mended since, and firmware that is optional.
    """
    messages = parse_messages(recording.kernel_log)
    unusable = set(recording.chips) - {gpu.address for gpu in listed(recording)[1]}
    for pattern, what, action in LOG_ERRORS:
        chips = [
            address
            for address, message in messages
            if re.match(pattern, message) and (address in unusable or (unusable and not address))
        ]
        if chips:
            yield Finding(what, f"chip {chips[-1]}" if chips[-1] else "kernel log", action)
