# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's ``.run`` files: the meaning of their names, the choice for a host, and the commands that run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..common.run_file import Installer
from ..vendor_stack.model import StackError
from .versions import is_same

DRIVER = "driver"
FIRMWARE = "firmware"
TOOLKIT = "toolkit"
OPS = "ops"
NNAL = "nnal"
# CANN itself, in the order of its installation.
CANN = (TOOLKIT, OPS, NNAL)
# The user of Huawei's installers unless an option names another.
USER = "HwHiAiUser"

PLACE = "/var/lib/baremetal-cann"
LOG = "/var/log/ascend_seclog/ascend_install.log"
# UNCONFIRMED: the name of CANN's own log.
CANN_LOG = "/var/log/ascend_seclog/ascend_toolkit_install.log"
ENVIRONMENT = "/usr/local/Ascend/ascend-toolkit/set_env.sh"

_HDK = r"(?:Ascend-hdk-(?P<chip>\w+)-npu|Atlas-(?P<atlas>A\d)-hdk-npu)"
# x86 builds were seen with either line between x86 and 64.
_END = r"_(?P<version>[^_]+)_linux[-_](?P<arch>aarch64|x86[-_]64)\.run$"
_FORMS = {
    DRIVER: re.compile(_HDK + "-driver" + _END, re.I),
    FIRMWARE: re.compile(_HDK + r"-firmware_(?P<version>[^_]+?)(?:_linux[-_](?P<arch>aarch64|x86[-_]64))?\.run$", re.I),
    TOOLKIT: re.compile("Ascend-cann-toolkit" + _END, re.I),
    OPS: re.compile(r"(?:Ascend-cann-(?P<chip>\w+)-ops|Atlas-(?P<atlas>A\d)-cann-ops)" + _END, re.I),
    NNAL: re.compile("Ascend-cann-nnal" + _END, re.I),
}
EXAMPLES = {
    DRIVER: "Ascend-hdk-{chip}-npu-driver_{version}_linux-{arch}.run",
    FIRMWARE: "Ascend-hdk-{chip}-npu-firmware_{version}.run",
    TOOLKIT: "Ascend-cann-toolkit_{version}_linux-{arch}.run",
    OPS: "Ascend-cann-{chip}-ops_{version}_linux-{arch}.run",
    NNAL: "Ascend-cann-nnal_{version}_linux-{arch}.run",
}


@dataclass(frozen=True)
class RunFile:
    """A file that the site offers, with the values in its name; ``chip`` and ``arch`` are empty where it fits any."""

    name: str
    url: str
    sha256: str
    component: str
    chip: str
    version: str
    arch: str

    @property
    def path(self) -> str:
        """The path of the file on the host."""
        return f"{PLACE}/{self.name}"


def read_files(entries: Sequence[Mapping[str, Any]]) -> tuple[RunFile, ...]:
    """Return the files in ``cann_run_files``. Raises StackError for an entry that is refused or invalid."""
    return tuple(_read(entry) for entry in entries)


def _read(entry: Mapping[str, Any]) -> RunFile:
    url = str(entry.get("url") or "")
    name = str(entry.get("name") or url.rsplit("/", 1)[-1])
    if not re.match(r"(https?|file)://.", url):
        raise StackError(f"cann_run_files: {name or 'a file'} has the address {url!r}; expected http(s):// or file://")
    sha256 = str(entry.get("sha256") or "").lower()
    if not re.match(r"[0-9a-f]{64}\Z", sha256):
        raise StackError(
            f"cann_run_files: sha256 of {name} is {sha256!r}, expected 64 hexadecimal digits; no file is run that was "
            "not verified"
        )
    for component, form in _FORMS.items():
        found = form.match(name)
        if found:
            fields = found.groupdict()
            chip = fields.get("chip") or fields.get("atlas") or ""
            arch = (fields.get("arch") or "").lower().replace("-", "_")
            return RunFile(name, url, sha256, component, chip, fields["version"], arch)
    forms = ", ".join(form.format(chip="910b", version="26.0.rc1", arch="aarch64") for form in EXAMPLES.values())
    raise StackError(f"cann_run_files: {name!r} is not a name of one of Huawei's files; expected forms like {forms}")


def choose_file(files: Iterable[RunFile], component: str, chip: str, version: str, arch: str) -> RunFile:
    """Return the file of a component that fits a host; ``version`` is empty for any.

    A fleet with several kinds of hosts lists the files of all. Raises StackError with the reason where none fits.
    """
    offered = [file for file in files if file.component == component]
    wanted = EXAMPLES[component].format(chip=chip, version=version or "VERSION", arch=arch.replace("x86_64", "x86-64"))
    if not offered:
        raise StackError(f"cann_run_files has no {component}; this host needs {wanted}")
    fit = [file for file in offered if not _against(file, chip, version, arch)]
    if len(fit) == 1:
        return fit[0]
    if fit:
        names = " and ".join(file.name for file in fit)
        raise StackError(f"cann_run_files has several files for {component}: {names}; keep one, or set its version")
    why = "; ".join(f"{file.name} is for {_against(file, chip, version, arch)}" for file in offered)
    raise StackError(f"cann_run_files has no {component} for this host; add {wanted} ({why})")


def _against(file: RunFile, chip: str, version: str, arch: str) -> str:
    """Return why a file does not fit a host, empty where it fits."""
    if file.chip and not is_same(file.chip, chip):
        return f"chip {file.chip}, the host has {chip}"
    if file.arch and file.arch != arch:
        return f"{file.arch}, the host is {arch}"
    if version and not is_same(file.version, version):
        return f"version {file.version}, needed is {version}"
    return ""


def installer_of(file: RunFile, upgrade: bool, user: str, group: str) -> Installer:
    """Return the command that runs a file unattended; ``upgrade`` replaces an installed driver or firmware."""
    log = CANN_LOG if file.component in CANN else LOG
    why = f"{'another' if upgrade else 'the'} {file.component}, {file.version}"
    return Installer(file.name, file.url, file.path, file.sha256, _argv(file, upgrade, user, group), why, log)


def _argv(file: RunFile, upgrade: bool, user: str, group: str) -> tuple[str, ...]:
    if file.component in (OPS, NNAL):
        # Huawei's guide sources the toolkit's environment before it runs these files.
        return ("/bin/bash", "-c", f'. {ENVIRONMENT} && exec "$0" "$@"', file.path, "--install", "--quiet")
    if upgrade and file.component not in CANN:
        # This option excludes the options that choose the user of the installation.
        return (file.path, "--upgrade", "--quiet")
    if file.component != DRIVER:
        return (file.path, "--full", "--quiet")
    names = () if (user, group) == (USER, USER) else (f"--install-username={user}", f"--install-usergroup={group}")
    return (file.path, "--full", "--install-for-all", *names, "--quiet")
