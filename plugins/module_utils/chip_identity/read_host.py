# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the vendors' tools and the kernel for serial numbers and firmware of the host's chips. Changes nothing."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..accelerator.pci_host import read_functions
from ..cann.answers import parse_table
from ..cann.host import TOOLS as NPU_SMI
from ..common.files_host import text_of
from ..common.foreign_text import quote_foreign
from ..vendor_stack.answers import NOT_FOUND, CommandResult
from ..vendor_stack.host import Run, run_command
from .answers import NVIDIA_QUERY, Identity, parse_amd, parse_huawei, parse_nvidia

NVIDIA, AMD, HUAWEI = "10de", "1002", "19e5"
# Files that amdgpu has for a card.
AMD_FILES = ("serial_number", "unique_id", "vbios_version")


class Identities(NamedTuple):
    """The chips that gave an answer, and a line for each tool that did not."""

    chips: list[Identity]
    problems: list[str]


def read_identities(sysfs_root: str = "/sys", run: Run = run_command) -> Identities:
    """Return the identities of the host's chips. Raises PciError without a sysfs.

    A chip without an answer is missing in the result: the PCI tree alone has no serial numbers.
    """
    vendors = {function.vendor_id for function in read_functions(sysfs_root, (NVIDIA, AMD, HUAWEI))}
    chips: list[Identity] = []
    problems: list[str] = []
    if NVIDIA in vendors:
        answer = run(["nvidia-smi", f"--query-gpu={','.join(NVIDIA_QUERY)}", "--format=csv,noheader"])
        chips += parse_nvidia(answer.out) if answer.rc == 0 else []
        problems += _explain("nvidia-smi", answer)
    if AMD in vendors:
        chips += _read_amd(sysfs_root)
    if HUAWEI in vendors:
        table, boards = _ask_huawei(run)
        chips += parse_huawei(boards)
        problems += _explain("npu-smi info", table)
    return Identities(sorted(chips), problems)


def _explain(tool: str, answer: CommandResult) -> list[str]:
    if answer.rc == 0:
        return []
    said = " ".join((answer.err or answer.out).split())
    reason = "is not installed" if answer.rc == NOT_FOUND else f"ended with status {answer.rc}: {quote_foreign(said)}"
    return [f"{tool} {reason}"]


def _read_amd(sysfs_root: str) -> list[Identity]:
    devices = os.path.join(sysfs_root, "bus", "pci", "devices")
    files = {}
    for function in read_functions(sysfs_root, (AMD,)):
        texts = {name: text_of(os.path.join(devices, function.address, name)) for name in AMD_FILES}
        if any(texts.values()):
            files[function.address] = texts
    return parse_amd(files)


def _ask_huawei(run: Run) -> tuple[CommandResult, dict[str, str]]:
    """Return the answer of npu-smi's table, and the text about each chip's board by its address."""
    tool, table = NPU_SMI[0], run([NPU_SMI[0], "info"])
    for other in NPU_SMI[1:]:
        if table.rc == NOT_FOUND:
            tool, table = other, run([other, "info"])
    rows = parse_table(table.out)
    return table, {row.address: run([tool, "info", "-t", "board", "-i", row.npu]).out for row in rows}
