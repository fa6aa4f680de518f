# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about AMD's driver on a host, from files and the output of tools. Changes nothing."""

from __future__ import annotations

import glob
import os
import re
import time
from dataclasses import asdict, replace
from typing import Any, Mapping, Sequence

from ..accelerator.drivers_host import read_drivers
from ..accelerator.pci_host import read_functions
from ..common.credentials import redact_credentials
from ..common.files_host import text_of
from ..common.versions import numbers_of
from ..vendor_stack.answers import NOT_INSTALLED, parse_module_info
from ..vendor_stack.faults import NO_FAULTS, FaultBook, last_resets
from ..vendor_stack.host import (
    KMSG,
    Run,
    build_log,
    kernel_records,
    module_info,
    read_accounts,
    read_host,
    read_text,
    run_command,
)
from ..vendor_stack.model import Host
from ..vendor_stack.proof import loaded_version
from ..vendor_stack.state_module import common_state
from .answers import AMD_SMI, ROCM_SMI, GpuAnswer, parse_amd_smi, parse_kfd
from .chips import GROUPS, MODULES, Blacklist, RocmHostState
from .packages import RELEVANT
from .proof import KIND, Node, RocmRecording, check_driver, listed
from .settings import GRUB_FILE, KEPT_OUT, KEPT_OUT_WORD
from .tools_host import ask_tool, read_records

AMD = "1002"
# Every program that computes has it open. A desktop has only render nodes open; then the module cannot be unloaded.
NODES = re.compile(r"/dev/kfd$")
CHIP_CLASSES = ("0300", "0302", "0380", "1200")
# By precedence: of files with the same name the last one counts.
MODPROBE_DIRECTORIES = (
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
    "usr/local/lib/modprobe.d",
    "run/modprobe.d",
    "etc/modprobe.d",
)
# The files with ROCm's version: the target of /opt/rocm/core first.
ROCM_VERSIONS = ("opt/rocm/core/.info/version", "opt/rocm/.info/version", "opt/rocm/core-*/.info/version")

_AMDS_SOURCES = re.compile(r"radeon\.com|amd\.com|amdgpu|rocm")


def inspect_host(
    root: str = "/",
    sysfs_root: str = "/sys",
    proc_root: str = "/proc",
    chips: Sequence[str] = (),
    users: Sequence[str] = (),
    run: Run = run_command,
    book: FaultBook = NO_FAULTS,
) -> RocmRecording:
    """Return the state of a host. ``root`` contains /etc, /boot, /dev, /opt and /var.

    ``chips`` are the PCI addresses of the relevant chips, by default all of AMD's, including those of consoles;
    ``users`` are the users whose groups are read, ``book`` is the catalogue of faults. Raises PciError without a sysfs.
    """
    host = read_host(root, sysfs_root, proc_root, run, MODULES, RELEVANT)
    members, accounts = read_accounts(root, (*GROUPS, *users))
    host = replace(host, groups=members, users=accounts)
    functions = [function for function in read_functions(sysfs_root, (AMD,)) if not function.virtual]
    found = tuple(function.address for function in functions if function.class_id in CHIP_CLASSES)
    nodes = sorted(glob.glob(os.path.join(sysfs_root, "class", "kfd", "kfd", "topology", "nodes", "*", "properties")))
    kfd = tuple(parse_kfd([text_of(path) for path in nodes]))
    disk = {kernel: module_info((KIND.module,), kernel, run) for kernel in host.kernels}
    amd_smi = ask_tool(AMD_SMI, run)
    usable = amd_smi.rc == 0 and parse_amd_smi(amd_smi.out)
    log = kernel_records(run, (KIND.log,), os.path.join(root, KMSG.lstrip("/")))
    booted = time.time() - time.monotonic()
    return RocmRecording(
        host=host,
        chips=tuple(chips) or found,
        shown=_rocm_host_state(root, proc_root, host, kfd, disk),
        kfd=kfd,
        amd_smi=amd_smi,
        rocm_smi=NOT_INSTALLED if usable else ask_tool(ROCM_SMI, run),
        bound={address: _bound(sysfs_root, address) for address in tuple(chips) or found},
        nodes=tuple(_device_nodes(root)),
        disk=disk,
        kernel_log="\n".join(record.text for record in log),
        errors=read_records(run).records,
        resets={chip: booted + at for chip, at in last_resets(book, log).items()},
        build_log=build_log(root, KIND.dkms),
        partitions=_partitions(sysfs_root, tuple(chips) or found),
    )


def read_state(options: Mapping[str, Any], book: FaultBook) -> dict[str, Any]:
    """Return the results of the module driver_state for this stack. Raises PciError without a sysfs."""
    chips, users = options["chips"] or (), options["users"] or ()
    recording = inspect_host(options["root"], options["sysfs_root"], options["proc_root"], chips, users, book=book)
    recording = replace(
        recording, wants_tools=bool(options["userspace"]), partition=options["partition"] or recording.partition
    )
    who, gpus = listed(recording)
    version = loaded_version(KIND, recording.host)
    facts = {
        "accelerator_driver_version": version,
        "accelerator_rocm_version": recording.shown.rocm,
        "accelerator_mec_firmware": read_drivers(options["sysfs_root"]).get("amd", {}).get("mec_firmware"),
    }
    findings = check_driver(recording, options["minimum_driver"], options["hold"], book)
    return {
        "ansible_facts": {name: value for name, value in facts.items() if value},
        "chips": recording.chips,
        "gpus": [asdict(gpu) for gpu in gpus],
        "listed_by": who,
        "shown": recording.shown.as_dict(),
        "driver": {"version": version, "loaded": KIND.module in recording.host.modules},
        "services": {},
        **common_state(options, recording.host, findings, NODES),
    }


def _rocm_host_state(
    root: str, proc_root: str, host: Host, kfd: Sequence[GpuAnswer], disk: Mapping[str, str]
) -> RocmHostState:
    info = parse_module_info(disk[host.kernel])
    loaded = host.modules.get(KIND.module)
    is_stale = False
    if info and loaded:
        another_build = bool(loaded.srcversion) and info.srcversion != loaded.srcversion
        is_stale = info.version != (loaded.version or "") or another_build
    command_line = text_of(os.path.join(proc_root, "cmdline")).strip()
    blacklists, blacklisting = _blacklists(root, command_line)
    return RocmHostState(
        driven=tuple(gpu.address for gpu in kfd),
        has_module=info is not None,
        disk=info.version if info else "",
        is_stale=is_stale,
        rocm=_rocm_version(root),
        blacklists=blacklists,
        blacklisting=blacklisting,
        sources=_sources(root),
        has_grub=os.path.isfile(os.path.join(root, "etc", "default", "grub")),
        grub=read_text(os.path.join(root, GRUB_FILE.lstrip("/"))),
        command_line=command_line,
        cpu_vendor=_cpu_vendor(proc_root),
        numa_balancing=text_of(os.path.join(proc_root, "sys", "kernel", "numa_balancing")).strip(),
    )


def _bound(sysfs_root: str, address: str) -> str:
    """Return the driver bound to a PCI function, empty for none."""
    link = os.path.join(sysfs_root, "bus", "pci", "devices", address, "driver")
    return os.path.basename(os.readlink(link)) if os.path.islink(link) else ""


def _partitions(sysfs_root: str, addresses: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the modes of compute and memory of the chips that the driver can divide."""
    places = {address: os.path.join(sysfs_root, "bus", "pci", "devices", address) for address in addresses}
    read = {
        address: tuple(
            text_of(os.path.join(place, f"current_{what}_partition")).strip() for what in ("compute", "memory")
        )
        for address, place in places.items()
    }
    return {address: (modes[0], modes[1]) for address, modes in read.items() if any(modes)}


def _device_nodes(root: str) -> list[Node]:
    groups = (line.split(":") for line in text_of(os.path.join(root, "etc", "group")).splitlines())
    names = {row[2]: row[0] for row in groups if len(row) == 4}
    nodes = []
    for pattern in ("dev/kfd", "dev/dri/renderD*"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            status = os.stat(path)
            place = "/" + os.path.relpath(path, root)
            nodes.append(Node(place, names.get(str(status.st_gid), str(status.st_gid)), status.st_mode & 0o7777))
    return nodes


def _blacklists(root: str, command_line: str) -> tuple[tuple[Blacklist, ...], dict[str, str]]:
    """Return the entries that prevent amdgpu from loading, and the contents of their files."""
    found = [Blacklist("", 0, word) for word in command_line.split() if KEPT_OUT_WORD.match(word)]
    files: dict[str, str] = {}
    for directory in MODPROBE_DIRECTORIES:
        for path in sorted(glob.glob(os.path.join(root, directory, "*.conf"))):
            files[os.path.basename(path)] = path
    texts = {}
    for path in sorted(files.values()):
        place, text = "/" + os.path.relpath(path, root), text_of(path)
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if KEPT_OUT.match(line)]
        found += [Blacklist(place, number, line.strip()) for number, line in lines]
        texts.update({place: text} if lines else {})
    return tuple(found), texts


def _sources(root: str) -> dict[str, str]:
    """Return apt's lines in files that name AMD's repositories, without credentials and without the role's files."""
    apt = os.path.join(root, "etc", "apt")
    found = {}
    for pattern in ("sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"):
        for path in sorted(glob.glob(os.path.join(apt, pattern))):
            lines = [line for line in text_of(path).splitlines() if not line.lstrip().startswith("#")]
            ours = os.path.basename(path).startswith("baremetal-")
            if not ours and any(_AMDS_SOURCES.search(line) for line in lines):
                found["/" + os.path.relpath(path, root)] = redact_credentials("\n".join(lines))
    return found


def _rocm_version(root: str) -> str:
    """Return the version of ROCm in user space, without its build number; empty where it is missing."""
    for pattern in ROCM_VERSIONS:
        texts = [text_of(path).strip() for path in glob.glob(os.path.join(root, pattern))]
        if any(texts):
            return max(texts, key=numbers_of).split("-")[0]
    return ""


def _cpu_vendor(proc_root: str) -> str:
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text_of(os.path.join(proc_root, "cpuinfo")), re.MULTILINE)
    return found.group(1) if found else ""
