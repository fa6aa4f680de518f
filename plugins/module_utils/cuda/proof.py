# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of NVIDIA's driver: a recording of the host in, findings out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Iterator, Mapping

from ..accelerator.partitions import mig_gib, mig_instances
from ..common.foreign_numbers import read_count
from ..common.versions import upstream_version
from ..vendor_stack.answers import NOT_FOUND, NOT_INSTALLED, TIMED_OUT, CommandResult
from ..vendor_stack.faults import NO_FAULTS, FaultBook
from ..vendor_stack.model import Host
from ..vendor_stack.proof import (
    DriverKind,
    Finding,
    check_builds,
    check_exit,
    check_holds,
    check_log,
    check_minimum,
    check_states,
    known_errors,
    loaded_version,
)
from .answers import GpuAnswer, GpuReport, parse_query, parse_report, split_report
from .chips import OPEN, PROPRIETARY
from .counters import JOINING, LOST, NOT_JOINED, REBOOT, ROW_LOST, UNHEALTHY, UNKNOWN_RECOVERY, UNREADABLE, faults_of
from .counters import RESET as ASKS_RESET
from .packages import is_driver, is_fabric, on_disk

KIND = DriverKind("cuda", "nvidia", "nvidia", is_driver, "nvrm")
PERSISTENCED = "nvidia-persistenced"
FABRIC_MANAGER = "nvidia-fabricmanager"

# Error messages of nvidia-smi, their meaning, and what to do.
TOOL_ERRORS = (
    (
        r"couldn't communicate with the NVIDIA driver",
        "nvidia-smi cannot reach the driver",
        "run 'modprobe nvidia' and read the kernel's messages with 'dmesg | grep -i nvrm'",
    ),
    (
        r"Driver/library version mismatch",
        "the tools and the loaded driver have different versions: the driver was upgraded while it was loaded",
        "reboot, or stop what uses the chips and load the module again",
    ),
    (
        r"No devices were found",
        "the driver is loaded, but bound to no chip",
        "read why with 'dmesg | grep -i nvrm'; a chip may need the other flavour of the kernel modules, or an "
        "older driver branch",
    ),
    (
        r"GPU is lost|fallen off the bus",
        "a chip no longer responds",
        "switch the machine off and on; if the error returns, check power, seat and temperature of the card",
    ),
    (
        r"Unable to determine the device handle",
        "a chip does not respond",
        "reset it with 'nvidia-smi --gpu-reset', or reboot",
    ),
)
# In /proc/driver/nvidia/gpus/*/information, by the current name and that of older branches.
EXCLUDED = r"^(GPU Excluded|Blacklisted):\s*Yes"
# Kernel messages about modules of the wrong flavour. UNCONFIRMED: the second.
FLAVOUR_ERRORS = (
    (
        r"^NVRM: (?!Xid).*not supported by open",
        "the open kernel modules are loaded, but a chip needs the proprietary ones",
        "set cuda_policy to install and run the role cuda",
    ),
    (
        r"^NVRM: (?!Xid).*requires use of the NVIDIA open kernel modules",
        "the proprietary kernel modules are loaded, but a chip needs the open ones",
        "set cuda_policy to install and run the role cuda",
    ),
)
RESET = "nvidia-smi --gpu-reset"
# Of a rack's NVLink (GB200, GB300) the fabric manager runs on the switches, not on this host.
RACK = "read what manages the NVLink switches, 'nvidia-smi -q' shows its state here; reset the chip once it is well"
UNWELL = "Unhealthy"
# Drivers report up to a tenth less than the nominal memory, most with error correction in GDDR6.
_LEAST_SHARE = 0.85


@dataclass(frozen=True)
class CudaRecording:
    """The recorded state of a host, as texts.

    ``chips`` are the PCI addresses of NVIDIA's chips, ``fabric`` is that of CudaHardware. ``information`` is the
    content of /proc/driver/nvidia/gpus by PCI address. ``disk`` is modinfo's output by kernel, ``services`` that of
    ``systemctl is-active`` by unit, empty without systemd. ``nvrm`` is /proc/driver/nvidia/version, ``build_log`` the
    end of the log of a failed build. ``memory`` is what the catalogue says of each chip, in MiB by PCI address.
    ``partition`` are the MIG instances of each chip that the plans are for (7x1g.10gb), empty for whole chips.
    """

    host: Host
    chips: tuple[str, ...]
    fabric: str = ""
    query: CommandResult = NOT_INSTALLED
    report: CommandResult = NOT_INSTALLED
    information: Mapping[str, str] = field(default_factory=dict)
    disk: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    kernel_log: str = ""
    nvrm: str = ""
    build_log: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)
    partition: str = ""

    @property
    def flavour(self) -> str:
        """The flavour of the loaded modules, empty where none are loaded."""
        if "NVRM version" not in self.nvrm:
            return ""
        return OPEN if "Open Kernel Module" in self.nvrm else PROPRIETARY


def check_driver(
    recording: CudaRecording, minimum: str = "", hold: bool = True, book: FaultBook = NO_FAULTS
) -> list[Finding]:
    """Return the findings about the driver, none if it is healthy. ``book`` is the catalogue of faults.

    ``minimum`` is the oldest driver that the release works with, empty for any. What a driver that works and that no
    package owns lacks for the next boot is a finding for later.
    """
    gpus, reports = parse_query(recording.query.out), parse_report(recording.report.out)
    host, disk = recording.host, recording.disk
    foreign = is_foreign(host)
    return [
        *_nouveau(host),
        *(replace(finding, later=foreign) for finding in check_builds(KIND, host, disk, recording.build_log)),
        *check_minimum(KIND, host, minimum),
        *(check_holds(KIND, host) if hold else ()),
        *_tool(recording, gpus),
        *_unreported(recording, gpus, reports),
        *_states(reports, recording.fabric, foreign),
        *_reported(recording, gpus, reports, book),
        *_instances(reports, recording),
        *_virtual(gpus, reports, recording.memory),
        *_services(recording, foreign),
        *_fabric(recording),
        *_flavour(recording, gpus),
        *check_log(book, recording.kernel_log, RESET),
    ]


def is_foreign(host: Host) -> bool:
    """Return whether the driver that is loaded came from elsewhere than packages.

    Vendors' installers, images of clouds and devices that a hypervisor passes through bring such drivers.
    """
    return bool(loaded_version(KIND, host)) and on_disk(host) is None


def _nouveau(host: Host) -> Iterator[Finding]:
    if "nouveau" in host.modules:
        yield Finding("nouveau is loaded and holds the chips", "module nouveau", "prevent it from loading and reboot")


def _tool(recording: CudaRecording, gpus: list[GpuAnswer]) -> Iterator[Finding]:
    """Yield nvidia-smi's own errors, and differences between its chips and those of PCI."""
    query = recording.query
    known = known_errors(TOOL_ERRORS, query)
    for what, action in known:
        yield Finding(what, "nvidia-smi", action)
    if query.rc == NOT_FOUND:
        yield Finding("nvidia-smi is not installed", "nvidia-smi", "install the driver's tools")
    elif not known:
        yield from check_exit("nvidia-smi", query, "xid")
    listed = [gpu.address for gpu in gpus]
    # NVML guarantees no order; plans follow the one that it has everywhere.
    if len({gpu.name for gpu in gpus}) > 1 and listed != sorted(listed):
        what = f"nvidia-smi lists GPUs of several models as {', '.join(listed)}, plans by PCI addresses"
        yield Finding(what, "nvidia-smi", "reboot; if the order stays, keep GPUs of one model in the host")
    # A failing tool lists nothing, which proves nothing about the chips.
    for address in sorted(set(recording.chips) - set(listed)) if query.rc == 0 else ():
        information = recording.information.get(address)
        why = "the driver is not bound to it" if information is None else "the driver is bound to it"
        action = f"read why with 'dmesg | grep {address}'"
        if re.search(EXCLUDED, information or "", re.MULTILINE):
            why, action = "the driver is configured to exclude it", "look for NVreg_ExcludedGpus in /etc/modprobe.d"
        yield Finding(
            f"nvidia-smi lists {len(listed)} of {len(recording.chips)} chips on PCI; {why}", f"chip {address}", action
        )
    for gpu in gpus:
        if gpu.broken:
            action = "reset the chip with 'nvidia-smi --gpu-reset', or reboot; if the error returns, replace the chip"
            yield Finding(f"nvidia-smi shows {', '.join(gpu.broken)}", f"chip {gpu.address}", action)


def _unreported(recording: CudaRecording, gpus: list[GpuAnswer], reports: list[GpuReport]) -> Iterator[Finding]:
    """Yield chips that nvidia-smi lists and whose state it does not report, which proves nothing about them."""
    described = {report.address for report in reports}
    for gpu in gpus:
        if gpu.address not in described:
            how = "does not finish" if recording.report.rc == TIMED_OUT else "does not describe it"
            action = "read what 'nvidia-smi -q' prints; a reboot may be needed"
            yield Finding(f"its state is unknown: nvidia-smi -q -x {how}", f"chip {gpu.address}", action)


def _states(reports: list[GpuReport], fabric: str, foreign: bool) -> Iterator[Finding]:
    for report in reports:
        where = f"chip {report.address}"
        if report.recovery:
            yield Finding(f"the driver asks for: {report.recovery}", where, "do that, or reboot")
        if report.remapping_failed:
            yield Finding("a bad row of memory could not be replaced", where, "replace the chip")
        if report.mig != report.mig_pending:
            yield Finding(f"MIG is {report.mig} and will be {report.mig_pending}", where, "reset the chip, or reboot")
        if report.persistence == "Disabled":
            action = f"make sure that {PERSISTENCED} runs with --persistence-mode"
            what = "persistence mode is off: the chip is initialised again for each program"
            yield Finding(what, where, action, later=foreign)
        state = f"{report.fabric} {report.fabric_status}".strip()
        # A100 does not report it.
        if fabric and state and state != "Completed Success":
            action = f"read 'journalctl -u {FABRIC_MANAGER}'; reboot once it runs"
            yield Finding(f"the chip has not joined the NVLink fabric: {state}", where, action)
        elif report.fabric == "Completed" and report.fabric_status not in ("", "Success"):
            yield Finding(f"the chip has not joined the rack's NVLink fabric: {report.fabric_status}", where, RACK)
        if report.fabric_health == UNWELL:
            yield Finding(f"the NVLink fabric of the chip is in the state {report.fabric_health}", where, RACK)


def _reported(
    recording: CudaRecording, gpus: list[GpuAnswer], reports: list[GpuReport], book: FaultBook
) -> Iterator[Finding]:
    """Yield the other states that nvidia-smi reports, by the reader and the catalogue of the health service."""
    broken = {gpu.address for gpu in gpus if gpu.broken}
    for gpu, report in zip(split_report(recording.report.out)[0], reports):
        # What _states and _tool have said already.
        said = {ROW_LOST, NOT_JOINED, JOINING}
        said |= {ASKS_RESET, REBOOT, UNKNOWN_RECOVERY} if report.recovery else set()
        said |= {LOST, ASKS_RESET, UNREADABLE} if report.address in broken else set()
        said |= {UNHEALTHY} if report.fabric_health == UNWELL or report.fabric_status not in ("", "Success") else set()
        texts = [text for text in faults_of(gpu) if text not in said]
        yield from check_states(book, texts, f"chip {report.address}", f"read 'nvidia-smi -q'; '{RESET}' may end it")


def _instances(reports: list[GpuReport], recording: CudaRecording) -> Iterator[Finding]:
    """Yield chips whose MIG instances are not those that the plans are for."""
    planned = recording.partition
    for report in reports:
        where, chip = f"chip {report.address}", f"nvidia-smi --id={report.address}"
        off = f"{chip} --multi-instance-gpu=0"
        if not planned and report.mig == report.mig_pending == "Enabled":
            shown = f"of {', '.join(map(str, report.mig_memory))} MiB" if report.mig_memory else "without instances"
            yield Finding(
                f"MIG is on ({shown}): programs see instances of the chip, and plans take whole chips",
                where,
                f"set accelerator_partition of the host, such as 7x1g.10gb ('nvidia-smi -L' names the profile), or run "
                f"'{off}' while nothing uses the chip",
            )
        if not planned or report.mig != report.mig_pending:
            continue
        whole = (recording.memory.get(report.address) or 0) / 1024
        least = mig_gib(planned, whole) * 1024 * _LEAST_SHARE
        found = report.mig_memory if report.mig == "Enabled" else ()
        if len(found) != mig_instances(planned) or min(found) < least:
            shown = f"instances of {', '.join(map(str, found))} MiB" if found else "no MIG instances"
            count, _x, profile = planned.lower().partition("x")
            yield Finding(
                f"accelerator_partition is {planned}, the chip has {shown}",
                where,
                f"correct it, or run '{off}', '{chip} --multi-instance-gpu=1' and 'nvidia-smi mig -i {report.address} "
                f"-cgi {','.join([profile] * int(count))} -C' while nothing uses the chip",
            )


def _virtual(gpus: list[GpuAnswer], reports: list[GpuReport], memory: Mapping[str, int]) -> Iterator[Finding]:
    """Yield chips with much less memory than the catalogue's, and vGPUs without a licence.

    A hypervisor hands out shares of chips under the ids of the whole.
    """
    virtual = {report.address for report in reports if report.virtual}
    for gpu in gpus:
        shown, whole = read_count(gpu.memory.partition(" ")[0]), memory.get(gpu.address)
        if shown and whole and shown < _LEAST_SHARE * whole:
            what = "it is a vGPU with" if gpu.address in virtual else "it has"
            action = f"set accelerator_memory_gib of the host to {shown / 1024:.1f}, or pass whole chips through"
            yield Finding(
                f"{what} {shown} MiB of memory, expected about {whole} for the id", f"chip {gpu.address}", action
            )
    for report in reports:
        if report.licence.startswith("Unlicensed"):
            action = "give nvidia-gridd its token (/etc/nvidia/ClientConfigToken), see 'nvidia-smi -q'"
            what = f"its vGPU licence is {report.licence}: the driver slows an unlicensed vGPU down"
            yield Finding(what, f"chip {report.address}", action)


def _services(recording: CudaRecording, foreign: bool) -> Iterator[Finding]:
    wanted = (PERSISTENCED, *((FABRIC_MANAGER,) if recording.fabric else ()))
    for name in wanted:
        state = recording.services.get(name) or "not known to systemd"
        if state != "active":
            action = f"run 'systemctl enable --now {name}'; if that fails, read 'journalctl -u {name}'"
            # It keeps chips initialised; nothing fails without it.
            later = foreign and name == PERSISTENCED
            yield Finding(f"{name} is {state}", f"service {name}", action, later)


def _fabric(recording: CudaRecording) -> Iterator[Finding]:
    """Yield fabric managers of another version than the driver, and those without anything to manage."""
    host = recording.host
    loaded = loaded_version(KIND, host)
    for name, version in sorted(host.packages.items()):
        if not is_fabric(name):
            continue
        if not recording.fabric:
            yield Finding("this machine has no NVSwitches to manage", f"package {name}", "remove it")
        elif loaded and upstream_version(version) != loaded:
            action = f"install {name} {loaded}, or the driver of its version"
            yield Finding(f"{name} is {upstream_version(version)}, the driver is {loaded}", f"package {name}", action)


def _flavour(recording: CudaRecording, gpus: list[GpuAnswer]) -> Iterator[Finding]:
    """Yield modules of the wrong flavour; the log keeps what it reported about modules that were loaded before."""
    unlisted = set(recording.chips) - {gpu.address for gpu in gpus}
    for pattern, what, action in FLAVOUR_ERRORS:
        if unlisted and re.search(pattern, recording.kernel_log, re.MULTILINE):
            yield Finding(what, "kernel log", action)
