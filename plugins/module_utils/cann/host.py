# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about Huawei's driver on a host, from files and the output of tools. Changes nothing."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import asdict, replace
from typing import Any, Mapping, Sequence

from ..accelerator.pci_host import read_functions
from ..common.files_host import text_of
from ..vendor_stack.answers import NOT_FOUND, NOT_INSTALLED, CommandResult
from ..vendor_stack.faults import FaultBook
from ..vendor_stack.host import Run, build_log, module_info, read_host, run_command
from ..vendor_stack.model import Host
from ..vendor_stack.state_module import common_state
from .answers import Installed, installed_of, parse_mapping, parse_table
from .counters import WELL
from .installers import CANN, USER
from .packages import DKMS
from .proof import DCMI, KIND, CannRecording, Expected, check_driver

HUAWEI = "19e5"
CHIP_CLASSES = ("1200",)
# Other names of the module that creates the device nodes. UNCONFIRMED: by versions of the driver.
MODULES = (KIND.module, "drv_davinci_intf", DKMS)
# sudo may remove /usr/local from the path.
TOOLS = ("npu-smi", "/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")
FILES = {
    "install": "etc/ascend_install.info",
    "driver": "usr/local/Ascend/driver/version.info",
    "firmware": "usr/local/Ascend/firmware/version.info",
}
# Files with the versions of CANN's parts, the newer location first; {arch} is that of uname.
CANN_PLACES = ("usr/local/Ascend/cann", "usr/local/Ascend/ascend-toolkit/latest")
NNAL_PLACES = ("usr/local/Ascend/nnal/atb/latest",)
CANN_FILES = {
    "toolkit": ("{arch}-linux/ascend_toolkit_install.info", "version.cfg"),
    "ops": ("{arch}-linux/ascend_ops_install.info", "{arch}-linux/ascend_kernels_install.info"),
}
# UNCONFIRMED: the location of NNAL's version.
NNAL_FILES = ("version.info", "ascend_nnal_install.info")
NODES = ("davinci*", "devmm_svm", "hisi_hdc")
OPEN_NODES = re.compile(r"/dev/(davinci|devmm_svm|hisi_hdc)")

_RELEVANT = re.compile(r"(ascend|atlas-|make$|gcc$|net-tools$|cann-keyring$)", re.IGNORECASE)


def inspect_host(
    root: str = "/",
    sysfs_root: str = "/sys",
    proc_root: str = "/proc",
    user: str = USER,
    group: str = USER,
    run: Run = run_command,
) -> CannRecording:
    """Return the state of a host. ``root`` contains /etc, /dev, /usr and /var; user and group are the driver's.

    Raises PciError without a sysfs.
    """
    host = _read_host(root, sysfs_root, proc_root, run)
    functions = [function for function in read_functions(sysfs_root, (HUAWEI,)) if not function.virtual]
    table = _ask(run, "info")
    # A tool that fails once need not be called again.
    works = table.rc == 0
    mapping = _ask(run, "info", "-m") if works else NOT_INSTALLED
    cards = _ask(run, "info", "-l") if works else NOT_INSTALLED
    npus = list(dict.fromkeys(parse_mapping(mapping.out)))
    boards = {npu: _ask(run, "info", "-t", "board", "-i", npu).out for npu in npus}
    ill = [row for row in parse_table(table.out) if row.health.upper() != WELL]
    return CannRecording(
        host=host,
        chips=tuple(function.address for function in functions if function.class_id in CHIP_CLASSES),
        installed=_installed(root, user, group, host.architecture, table.out, next(iter(boards.values()), "")),
        table=table,
        cards=cards,
        mapping=mapping,
        boards=boards,
        health={f"{row.npu}/{row.chip}": _ask(run, "info", "-t", "health", *row.arguments).out for row in ill},
        nodes=_nodes(root),
        dcmi=os.path.isdir(os.path.join(root, DCMI.lstrip("/"))),
        disk={kernel: module_info(MODULES, kernel, run) for kernel in host.kernels},
        build_log=build_log(root, KIND.dkms),
    )


def read_state(options: Mapping[str, Any], book: FaultBook) -> dict[str, Any]:
    """Return the results of the module driver_state for this stack.

    Raises PciError without a sysfs.
    """
    user, group = options["user"] or USER, options["group"] or USER
    recording = inspect_host(options["root"], options["sysfs_root"], options["proc_root"], user, group)
    expected = Expected(
        options["minimum_driver"],
        options["cann_version"] or "",
        bool(options["toolkit"]),
        user,
        group,
        options["hold"],
        tuple(options["nodes"] or ()),
    )
    return {
        "ansible_facts": _facts(recording),
        "chips": recording.chips,
        "npus": [asdict(row) for row in parse_table(recording.table.out)],
        "installed": recording.installed.as_dict(),
        "driver": {"version": _running_driver(recording)},
        "services": {},
        **common_state(options, recording.host, check_driver(recording, expected, book), OPEN_NODES),
    }


def _running_driver(recording: CannRecording) -> str:
    """Return the version of the running driver, empty if none runs; npu-smi may not report it."""
    installed = recording.installed
    return installed.running or (installed.driver if KIND.module in recording.host.modules else "")


def _facts(recording: CannRecording) -> dict[str, str]:
    """Return the facts of a host; missing parts have none."""
    installed = recording.installed
    found = {
        "accelerator_driver_version": _running_driver(recording),
        "accelerator_firmware_version": installed.running_firmware or installed.firmware,
        "accelerator_cann_version": installed.cann.get("toolkit", ""),
    }
    return {name: version for name, version in found.items() if version}


def _read_host(root: str, sysfs_root: str, proc_root: str, run: Run) -> Host:
    host = read_host(root, sysfs_root, proc_root, run, MODULES, _RELEVANT)
    loaded = [host.modules[name] for name in MODULES if name in host.modules]
    return replace(host, modules={KIND.module: loaded[0]} if loaded else {})


def _ask(run: Run, *words: str) -> CommandResult:
    answers = (run([tool, *words]) for tool in TOOLS)
    return next((answer for answer in answers if answer.rc != NOT_FOUND), NOT_INSTALLED)


def _installed(root: str, user: str, group: str, architecture: str, table: str, board: str) -> Installed:
    files = {name: text_of(os.path.join(root, path)) for name, path in FILES.items()}
    cann = {part: _first(root, CANN_PLACES, CANN_FILES[part], architecture) for part in CANN if part in CANN_FILES}
    cann["nnal"] = _first(root, NNAL_PLACES, NNAL_FILES, architecture)
    found = installed_of(files, table, board, cann)
    groups = _table(os.path.join(root, "etc", "group"))
    numbers = {row[2]: name for name, row in groups.items() if len(row) > 2}
    entry = _table(os.path.join(root, "etc", "passwd")).get(user, [])
    primary = numbers.get(entry[3], entry[3]) if len(entry) > 3 else ""
    return replace(found, group=primary, has_group=group in groups)


def _first(root: str, places: Sequence[str], names: Sequence[str], architecture: str) -> str:
    """Return the text of the first of these files that exists."""
    paths = (os.path.join(root, place, name.format(arch=architecture)) for place in places for name in names)
    return next((text for path in paths for text in [text_of(path)] if text), "")


def _table(path: str) -> dict[str, list[str]]:
    """Return the rows of /etc/passwd or /etc/group by name."""
    rows = (line.split(":") for line in text_of(path).splitlines())
    return {row[0]: row for row in rows if row[0]}


def _nodes(root: str) -> tuple[str, ...]:
    """Return Huawei's devices in /dev."""
    directory = os.path.join(root, "dev")
    found = [os.path.basename(path) for pattern in NODES for path in glob.glob(os.path.join(directory, pattern))]
    return tuple(f"/dev/{name}" for name in sorted(found))
