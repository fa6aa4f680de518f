# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a driver that are the same for all vendors: modules, kernels, holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from ..common.foreign_text import quote_foreign
from ..common.versions import at_least
from .answers import TIMED_OUT, CommandResult, ModuleInfo, parse_module_info
from .faults import BY_HAND, ISOLATE, RESET, Event, Fault, FaultBook, standing_faults
from .model import APT, Host

# Characters of each part of a finding; tools and logs say some of it.
_LONGEST = 1000

# How vendors write the kinds of the catalogue.
LOG_NAMES = {"xid": "Xid", "sxid": "SXid", "afid": "AFID"}
LOAD_AGAIN = "reboot, or stop what uses the chips and load the module again"


@dataclass(frozen=True)
class Finding:
    """A fault, its place, and what to do about it.

    ``later``: a warning; the driver works now, but perhaps not after a reboot, or the chip serves in spite of it.
    """

    what: str
    where: str
    action: str
    later: bool = False

    def as_dict(self) -> dict[str, str]:
        """Return the finding as plain data, JSON-serialisable: texts in one line, which a terminal can show."""
        texts = {"what": self.what, "where": self.where, "action": self.action}
        return {name: quote_foreign(text, _LONGEST) for name, text in texts.items()}


def describe_findings(findings: Sequence[Finding]) -> str:
    """Return findings as sentences for an error message: the place, what is wrong, what to do. Empty for none."""
    shown = (finding.as_dict() for finding in findings)
    return " ".join(f"{finding['where']}: {finding['what']}; {finding['action']}." for finding in shown)


@dataclass(frozen=True)
class DriverKind:
    """A vendor's driver: the role that installs it, its kernel module, its names in DKMS and packages.

    ``dkms`` is what the names of its DKMS modules begin with, ``is_package`` recognises its packages, ``log``
    is a word in its lines of the kernel's log.
    """

    role: str
    module: str
    dkms: str
    is_package: Callable[[str], bool]
    log: str

    @property
    def where(self) -> str:
        """The place of a finding about the module."""
        return f"module {self.module}"


def known_errors(errors: Iterable[tuple[str, str, str]], answer: CommandResult) -> list[tuple[str, str]]:
    """Return the known errors in the output of a vendor's tool: what each means, and what to do.

    Each of ``errors`` is a pattern, its meaning and what to do.
    """
    text = f"{answer.out}\n{answer.err}"
    return [(what, action) for pattern, what, action in errors if re.search(pattern, text)]


def check_exit(tool: str, answer: CommandResult, log: str) -> Iterator[Finding]:
    """Yield a vendor's tool that hangs, or ends with an unknown error; ``log`` is a word of its dmesg lines."""
    if answer.rc == TIMED_OUT:
        action = f"look for a chip in the kernel's log with 'dmesg | grep -i {log}'; a reboot may be needed"
        yield Finding(f"{tool} does not finish", tool, action)
    elif answer.rc != 0:
        last_line = (answer.err.strip() or answer.out.strip() or "nothing").splitlines()[-1]
        yield Finding(
            f"{tool} ends with exit status {answer.rc}; it prints: {last_line}", tool, "correct what it reports"
        )


def check_builds(kind: DriverKind, host: Host, disk: Mapping[str, str], build_log: str = "") -> Iterator[Finding]:
    """Yield faults of the loaded module, and kernels without a module; the arguments are those of check_modules."""
    yield from check_modules(kind, host, disk, build_log)
    yield from check_kernels(kind, host, disk, build_log)


def loaded_version(kind: DriverKind, host: Host) -> str:
    """Return the version of the module that is loaded, empty where none is or where it has none."""
    return host.modules[kind.module].version or "" if kind.module in host.modules else ""


def check_modules(kind: DriverKind, host: Host, disk: Mapping[str, str], build_log: str = "") -> Iterator[Finding]:
    """Yield a loaded module that is not the one on disk for this kernel.

    ``disk`` is modinfo's output by kernel, ``build_log`` the end of the log of a failed build.
    """
    info = parse_module_info(disk.get(host.kernel, ""))
    if kind.module not in host.modules:
        yield _not_loaded(kind, host, info, build_log)
        return
    loaded = host.modules[kind.module]
    if info is None:
        yield _not_built(kind, host, host.kernel, "the next load of the driver fails: ", build_log)
    elif loaded.version and info.version != loaded.version:
        what = f"driver {loaded.version} is loaded, {info.version or 'one without a version'} is on disk"
        yield Finding(what, kind.where, LOAD_AGAIN)
    elif loaded.srcversion and info.srcversion != loaded.srcversion:
        yield Finding(
            f"the driver that is loaded (srcversion {loaded.srcversion}) is another build of "
            f"{info.version or 'it'} than the one on disk (srcversion {info.srcversion})",
            kind.where,
            LOAD_AGAIN,
        )


def _not_loaded(kind: DriverKind, host: Host, info: ModuleInfo | None, build_log: str) -> Finding:
    if info is None:
        return _not_built(kind, host, host.kernel, "no driver is loaded: ", build_log)
    driver = f"driver {info.version} is" if info.version else "the driver is"
    if host.secure_boot and not host.signing_key_enrolled:
        return Finding(
            f"{driver} on disk and not loaded: Secure Boot is on and the key that DKMS signs with is not enrolled",
            kind.where,
            "enrol the key with 'mokutil --import' and confirm at the console, or switch Secure Boot off",
        )
    action = f"run 'modprobe {kind.module}' and read the kernel's messages with 'dmesg | grep -i {kind.log}'"
    return Finding(f"{driver} on disk and not loaded", kind.where, action)


def _not_built(kind: DriverKind, host: Host, kernel: str, before: str, build_log: str) -> Finding:
    headers = f"{'linux-headers' if host.manager == APT else 'kernel-devel'}-{kernel}"
    builds = [build for build in host.dkms if build.module.startswith(kind.dkms)]
    lacks = "" if headers in host.packages else f"install {headers}, then "
    action = f"{lacks}run 'dkms autoinstall -k {kernel}'" if builds else "install the driver for this kernel"
    if build_log:
        action += f"; the last build ended with: {'; '.join(build_log.splitlines())}"
    elif builds:
        action += f"; if that fails, read /var/lib/dkms/{builds[0].module}/{builds[0].version}/build/make.log"
    return Finding(f"{before}there is no module for kernel {kernel}", f"kernel {kernel}", action)


def check_kernels(kind: DriverKind, host: Host, disk: Mapping[str, str], build_log: str = "") -> Iterator[Finding]:
    """Yield the running kernel and the next one to boot, if they have no module that was built for them.

    A module of another version than the loaded one does not go with the tools that are installed.
    """
    loaded = loaded_version(kind, host)
    for kernel in host.kernels:
        info = parse_module_info(disk.get(kernel, ""))
        if info is None:
            if kernel != host.kernel:
                yield _not_built(kind, host, kernel, "the next boot has no driver: ", build_log)
        elif info.kernel != kernel:
            yield Finding(
                f"the module for kernel {kernel} was built for {info.kernel or 'an unknown one'}",
                f"kernel {kernel}",
                f"run 'dkms autoinstall --force -k {kernel}'",
            )
        elif kernel != host.kernel and loaded and info.version and info.version != loaded:
            yield Finding(
                f"the next boot loads driver {info.version}, and {loaded} with its tools is in use",
                f"kernel {kernel}",
                f"install the module of {loaded} for this kernel, or all of the driver in version {info.version}",
            )


def check_minimum(kind: DriverKind, host: Host, minimum: str) -> Iterator[Finding]:
    """Yield a driver that is older than the release works with; ``minimum`` is empty for any."""
    loaded = loaded_version(kind, host)
    if loaded and minimum and not at_least(loaded, minimum):
        yield Finding(
            f"driver {loaded} is loaded, the release needs {minimum} or newer",
            kind.where,
            f"set {kind.role}_policy to install, or choose a release that works with it",
        )


def check_holds(kind: DriverKind, host: Host) -> Iterator[Finding]:
    """Yield the driver's packages that an upgrade of the host may replace."""
    free = sorted(name for name in host.packages if kind.is_package(name) and name not in host.holds)
    if free:
        how = "apt-mark hold" if host.manager == APT else "dnf versionlock add"
        yield Finding("an upgrade may replace parts of the driver", ", ".join(free), f"run '{how} {' '.join(free)}'")


def check_states(book: FaultBook, texts: Iterable[str], where: str, action: str) -> Iterator[Finding]:
    """Yield the states of a chip that the vendor's tool reports, as the health service judges them.

    Those for which it takes no chip out of service are warnings.
    """
    for text in texts:
        fault = book.fault("state", text)
        yield Finding(f"{text} ({fault.meaning})", where, action, later="state" in book.kinds and not ends_late(fault))


def ends_late(fault: Fault) -> bool:
    """Return whether only a reset, a reboot or a person ends a fault."""
    return fault.action in (RESET, ISOLATE)


def check_log(book: FaultBook, log: str, reset: str) -> Iterator[Finding]:
    """Yield the chips' faults in the kernel's log that only a reset, a reboot or a person ends."""
    return check_events(standing_faults(book, log), reset, "kernel log")


def check_events(events: Iterable[Event], reset: str, source: str) -> Iterator[Finding]:
    """Yield the faults that only a reset, a reboot or a person ends.

    What a program caused and what a new start of an instance ends keeps no host from serving. ``reset`` is the
    command that resets a chip.
    """
    for event in events:
        fault = event.fault
        if not ends_late(fault):
            continue
        if fault.action == RESET:
            action = f"reset the chip with '{reset}', or reboot if the driver records no reset"
        elif fault.back == BY_HAND:
            action = "have the chip replaced, then reboot"
        else:
            action = "reboot, or switch the machine off and on; if it returns, check power, seat and temperature"
        code = f"{LOG_NAMES[fault.kind]} {fault.code}" if fault.kind in LOG_NAMES else source
        where = f"chip {event.chip}" if event.chip else source
        yield Finding(f"{code} since the last boot: {fault.meaning}", where, action)
