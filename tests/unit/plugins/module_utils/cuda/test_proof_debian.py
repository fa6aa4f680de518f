# SPDX-License-Identifier: GPL-3.0-or-later
"""What Debian's own NVIDIA packages really answer without a chip (fixtures/cuda-debian), and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.proof import CudaRecording, check_driver
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    CommandResult,
    parse_dkms,
    parse_module_info,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host

FIXTURES = Path(__file__).parents[4] / "fixtures" / "cuda-debian"
ANSWERS = {
    command: CommandResult(**answer)
    for command, answer in json.loads((FIXTURES / "no-driver.json").read_text(encoding="utf-8"))["answers"].items()
}
KERNEL = "6.1.0-50-amd64"
DKMS = f"nvidia-current/535.261.03, {KERNEL}, x86_64: installed\n"
MODINFO = (FIXTURES / "modinfo.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ANSWERS)
def test_tool_without_a_driver_is_told_from_one_that_is_missing(command):
    host = Host("debian", "12", "bookworm", "x86_64", KERNEL, KERNEL)
    found = check_driver(CudaRecording(host, ("0000:10:00.0",), query=ANSWERS[command]), "535.104.05", hold=False)
    assert [finding.what for finding in found if finding.where == "nvidia-smi"] == [
        "nvidia-smi cannot reach the driver"
    ]


def test_dkms_of_debian_12_names_module_kernel_and_state():
    assert parse_dkms(DKMS) == (DkmsBuild("nvidia-current", "535.261.03", KERNEL, "installed"),)


def test_modinfo_of_debians_module():
    found = parse_module_info(MODINFO)
    assert (found.version, found.srcversion, found.kernel) == ("535.261.03", "AC415F9243EB439A4D6B17F", KERNEL)


def test_module_that_finds_no_chip_is_on_disk_and_not_loaded():
    host = Host(
        "debian",
        "12",
        "bookworm",
        "x86_64",
        KERNEL,
        KERNEL,
        packages={"nvidia-kernel-dkms": "535.261.03-1"},
        dkms=parse_dkms(DKMS),
    )
    recording = CudaRecording(host, ("0000:10:00.0",), query=ANSWERS["nvidia-smi"], disk={KERNEL: MODINFO})
    found = [
        finding for finding in check_driver(recording, "535.104.05", hold=False) if finding.where == "module nvidia"
    ]
    assert [finding.what for finding in found] == ["driver 535.261.03 is on disk and not loaded"]
