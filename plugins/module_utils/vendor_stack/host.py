# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about a host that all drivers need: packages, kernels, modules, logs. Changes nothing."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import subprocess
from typing import Callable, Pattern, Sequence

from ..common.files_host import bytes_of, text_of
from ..common.foreign_text import quote_foreign
from ..common.versions import numbers_of
from .answers import NOT_FOUND, NOT_INSTALLED, TIMED_OUT, CommandResult, parse_dkms
from .kernel_records import KernelRecord, parse_journal, parse_kmsg, trusted_records
from .model import DNF, Host, Module, manager_of
from .users import Holder

Run = Callable[[Sequence[str]], CommandResult]

# If a chip hangs, the vendor's tool waits forever. Eight healthy chips without persistence mode take half a minute.
PATIENCE, LAST_PATIENCE = 90, 5
LOG_LINES = 8
KMSG = "/dev/kmsg"
# Records have at most 8 KiB.
RECORD = 65536
JOURNAL = (
    "journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", "--output=json",
    "--output-fields=MESSAGE,SYSLOG_FACILITY,_SOURCE_MONOTONIC_TIMESTAMP",
)  # fmt: skip
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SIGNING_KEYS = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")

# Tools by their path that did not end when they were killed.
_left: dict[str, subprocess.Popen[str]] = {}

_KERNELS = re.compile(r"dkms$|linux-(image|headers)-|kernel(-uek)?(-core|-devel|-headers|-devel-matched)?-\d")


def run_command(argv: Sequence[str]) -> CommandResult:
    """Run a command in the C locale and return its result after at most PATIENCE and LAST_PATIENCE seconds.

    A tool of which one was left behind is not started again before that one has ended: they would fill the memory.
    """
    path = shutil.which(argv[0]) or shutil.which(argv[0], path="/usr/sbin:/sbin")
    if path is None:
        return NOT_INSTALLED
    if path in _left and _left[path].poll() is None:
        return CommandResult(TIMED_OUT)
    try:
        process = subprocess.Popen(
            [path, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as exc:
        return CommandResult(126, err=f"{path}: {exc.strerror}")
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        # One that waits for a chip within the kernel does not even end by that, so nobody waits for it longer.
        _left[path] = process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LAST_PATIENCE)
        return CommandResult(TIMED_OUT)
    return CommandResult(process.returncode, out, err)


def read_host(
    root: str, sysfs_root: str, proc_root: str, run: Run, modules: Sequence[str], relevant: Pattern[str]
) -> Host:
    """Return the state of the host, with these kernel ``modules`` and the packages that ``relevant`` matches.

    Packages of kernels, their headers and DKMS are always included.
    """
    release = _os_release(os.path.join(root, "etc", "os-release"))
    kernel = text_of(os.path.join(proc_root, "sys", "kernel", "osrelease")).strip()
    # openEuler writes its own with a capital.
    distribution = release.get("ID", "").lower()
    secure_boot = _secure_boot(sysfs_root)
    found = {name: _module(sysfs_root, name) for name in modules}
    is_dnf = manager_of(distribution) == DNF
    packages, unfinished = (_rpm_packages(run), ()) if is_dnf else _deb_packages(run)
    return Host(
        distribution=distribution,
        version=release.get("VERSION_ID", ""),
        codename=release.get("VERSION_CODENAME", ""),
        architecture=os.uname().machine,
        kernel=kernel,
        next_kernel=_next_kernel(root, run) or kernel,
        secure_boot=secure_boot,
        signing_key_enrolled=_is_enrolled(root, run) if secure_boot else None,
        packages={name: version for name, version in packages if _KERNELS.match(name) or relevant.match(name)},
        modules={name: module for name, module in found.items() if module},
        dkms=parse_dkms(run(["dkms", "status"]).out),
        unfinished=unfinished,
        holds=_version_locks(run) if is_dnf else tuple(run(["apt-mark", "showhold"]).out.split()),
    )


def offered_versions(package: str, manager: str, run: Run = run_command) -> list[str]:
    """Return the versions of a package that the host's repositories have."""
    if manager == DNF:
        return run(["dnf", "-q", "repoquery", "--qf", "%{version}\n", package]).out.split()
    lines = (line.split("|") for line in run(["apt-cache", "madison", package]).out.splitlines())
    return [parts[1].strip() for parts in lines if len(parts) > 1]


def module_info(names: Sequence[str], kernel: str, run: Run) -> str:
    """Return modinfo's output for the first of these modules that a kernel has, empty if it has none."""
    answers = (run(["modinfo", "-k", kernel, name]) for name in names)
    return next((answer.out for answer in answers if answer.rc == 0), "")


def kernel_log(run: Run, words: Sequence[str], device: str = KMSG) -> str:
    """Return the texts of the kernel's own records since the boot that contain one of these words, one a line."""
    return "\n".join(record.text for record in kernel_records(run, words, device))


def kernel_records(run: Run, words: Sequence[str], device: str = KMSG) -> list[KernelRecord]:
    """Return the kernel's own records since the boot that contain one of these words.

    The journal has older records than ``device``. dmesg is not asked: it prints a line break in a program's name as
    one, so that a line could be a record that nobody wrote.
    """
    answer = run(JOURNAL)
    records = parse_journal(answer.out) if answer.rc == 0 else []
    return trusted_records(records or parse_kmsg(_read_device(device)), words)


def _read_device(path: str) -> str:
    """Return the text of /dev/kmsg, empty where it cannot be read. A read returns one record."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    parts = []
    try:
        while True:
            try:
                part = os.read(descriptor, RECORD)
            except BrokenPipeError:
                # The kernel has overwritten records; the next read returns the oldest that is left.
                continue
            except OSError:
                break
            if not part:
                break
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def build_log(root: str, dkms: str) -> str:
    """Return the end of the newest log of a build that DKMS has not finished, empty where there is none.

    ``dkms`` is the prefix of the names of the driver's DKMS modules.
    """
    logs = glob.glob(os.path.join(root, "var", "lib", "dkms", f"{dkms}*", "*", "build", "make.log"))
    newest = max(logs, key=os.path.getmtime, default="")
    return "\n".join(text_of(newest).splitlines()[-LOG_LINES:]) if newest else ""


def _next_kernel(root: str, run: Run) -> str:
    """Return the release of the kernel that boots next: grubby's default, else the newest in /boot.

    UNCONFIRMED: a kernel that was chosen manually in GRUB's menu on Debian or Ubuntu is not detected.
    """
    default = run(["grubby", "--default-kernel"])
    prefix = "vmlinuz-"
    paths = [default.out.strip()] if default.rc == 0 else glob.glob(os.path.join(root, "boot", f"{prefix}*"))
    names = [os.path.basename(path)[len(prefix) :] for path in paths if os.path.basename(path).startswith(prefix)]
    whole = [name for name in names if "rescue" not in name and not name.endswith(".old")]
    return max(whole, key=numbers_of, default="")


def _module(sysfs_root: str, name: str) -> Module | None:
    directory = os.path.join(sysfs_root, "module", name)
    if not os.path.isdir(directory):
        return None
    version, srcversion = (text_of(os.path.join(directory, part)).strip() for part in ("version", "srcversion"))
    return Module(version or None, srcversion or None)


def _secure_boot(sysfs_root: str) -> bool | None:
    """Return whether Secure Boot is on; never without UEFI, None where the variable cannot be read."""
    firmware = os.path.join(sysfs_root, "firmware", "efi")
    if not os.path.isdir(firmware):
        return False
    value = bytes_of(os.path.join(firmware, "efivars", SECURE_BOOT))
    return value[-1] == 1 if value else None


def _is_enrolled(root: str, run: Run) -> bool | None:
    """Return whether the firmware trusts a key that DKMS signs with, None where mokutil is not installed."""
    found = False
    for path in (os.path.join(root, key) for key in SIGNING_KEYS):
        if not os.path.exists(path):
            continue
        answer = run(["mokutil", "--test-key", path])
        if answer.rc == NOT_FOUND:
            return None
        found = found or "is already enrolled" in answer.out
    return found


def _deb_packages(run: Run) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the installed packages with their versions, and the names of those with an interrupted installation."""
    answer = run(["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}\t${Package}\t${Version}\n"])
    rows = [row for row in (line.split("\t") for line in answer.out.splitlines()) if len(row) == 3]
    # The second letter is the state: i for installed, n and c for removed, others for interrupted.
    installed = [(name, version) for state, name, version in rows if state[1:2] == "i"]
    return installed, tuple(name for state, name, _version in rows if state[1:2] not in "inc")


def _rpm_packages(run: Run) -> list[tuple[str, str]]:
    """Return installed packages; of kernels there are several, so their names carry the version, as in uname."""
    answer = run(["rpm", "-qa", "--queryformat", "%{NAME}\t%{EVR}\t%{VERSION}-%{RELEASE}.%{ARCH}\n"])
    rows = (line.split("\t") for line in answer.out.splitlines() if line.count("\t") == 2)
    return [(f"{name}-{full}" if name.startswith("kernel") else name, evr) for name, evr, full in rows]


def _version_locks(run: Run) -> tuple[str, ...]:
    """Return the names that dnf's version locks are for: of ``nvidia-open-3:580.95.05-1.el9.*`` nvidia-open."""
    lines = run(["dnf", "-q", "versionlock", "list"]).out.splitlines()
    found = (re.match(r"(?:Package name: )?([\w.+-]+?)(?:-\d+:\S+|-\d\S*-\S+)?$", line.strip()) for line in lines)
    return tuple(match.group(1) for match in found if match)


def _os_release(path: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text_of(path).splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _equals, value in pairs}


def read_text(path: str) -> str | None:
    """Return the text of a file, None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def active_units(run: Run, patterns: Sequence[str]) -> list[str]:
    """Return the systemd units of these names and patterns that run, nothing where there is no systemd."""
    listed = run(["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", *patterns])
    return [line.split()[0] for line in listed.out.splitlines() if line.strip()]


def read_holders(proc_root: str, nodes: Pattern[str]) -> list[Holder]:
    """Return the processes that have a device open whose path ``nodes`` matches, each once."""
    found = {}
    for link in glob.glob(os.path.join(proc_root, "[0-9]*", "fd", "*")):
        try:
            path = os.readlink(link)
        except OSError:
            # The process has ended, or closed it.
            continue
        directory = os.path.dirname(os.path.dirname(link))
        if nodes.match(path) and directory not in found:
            pid = int(os.path.basename(directory))
            command = quote_foreign(text_of(os.path.join(directory, "comm")).strip())
            found[directory] = Holder(pid, command, _unit_of(text_of(os.path.join(directory, "cgroup"))), path)
    return sorted(found.values(), key=lambda holder: holder.pid)


def _unit_of(cgroup: str) -> str:
    """Return the systemd unit of a process: the outermost, because a user names those inside of a login."""
    parts = [part for part in cgroup.replace("\n", "/").split("/") if part.endswith((".service", ".scope"))]
    return parts[0] if parts else ""


def read_accounts(root: str, names: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the groups among these names with their members, and the users with the names of their groups.

    Reads only the host's own files, because the stacks' accounts are local.
    """
    groups = [line.split(":") for line in text_of(os.path.join(root, "etc", "group")).splitlines()]
    by_gid = {row[2]: row[0] for row in groups if len(row) == 4}
    members = {row[0]: tuple(filter(None, row[3].split(","))) for row in groups if len(row) == 4 and row[0] in names}
    users = [line.split(":") for line in text_of(os.path.join(root, "etc", "passwd")).splitlines()]
    return members, {row[0]: by_gid.get(row[3], row[3]) for row in users if len(row) == 7 and row[0] in names}
