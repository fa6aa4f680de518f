# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciError
from ansible_collections.baremetal.inference.plugins.module_utils.chip_identity.answers import Identity
from ansible_collections.baremetal.inference.plugins.module_utils.chip_identity.read_host import read_identities
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    NOT_INSTALLED,
    CommandResult,
)

from tests.fakes.sysfs import lines, write_sysfs

ADDRESS = "0000:10:00.0"


def sysfs(tmp_path, *pci_ids):
    functions = [line for number, pci_id in enumerate(pci_ids) for line in lines(pci_id, 1, first=0x10 + number)]
    return str(write_sysfs(tmp_path / "sys", functions))


def answers(**found):
    """Return a way to run commands that knows these answers by the command's first word."""
    return lambda argv: found.get(argv[0].rpartition("/")[2].replace("-", "_"), NOT_INSTALLED)


def test_nvidia_is_asked_where_it_has_a_chip(tmp_path):
    run = answers(nvidia_smi=CommandResult(0, "00000000:10:00.0, 165, 96.00\n"))
    assert read_identities(sysfs(tmp_path, "10de:2335"), run) == ([Identity(ADDRESS, "165", "96.00")], [])


def test_no_tool_is_asked_without_a_chip(tmp_path):
    def run(argv):
        raise AssertionError(argv)

    assert read_identities(sysfs(tmp_path), run) == ([], [])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (NOT_INSTALLED, "nvidia-smi is not installed"),
        (CommandResult(9, "NVIDIA-SMI has failed\n"), "nvidia-smi ended with status 9: NVIDIA-SMI has failed"),
        (CommandResult(1, "", "a\x1b[1m\n b"), r"nvidia-smi ended with status 1: a\x1b[1m b"),
    ],
)
def test_a_tool_without_an_answer_is_named(tmp_path, answer, problem):
    assert read_identities(sysfs(tmp_path, "10de:2335"), answers(nvidia_smi=answer)) == ([], [problem])


def test_amd_needs_no_tool(tmp_path):
    root = sysfs(tmp_path, "1002:74a1", "1002:74a1")
    card = tmp_path / "sys/bus/pci/devices" / ADDRESS
    (card / "serial_number").write_text("692\n")
    (card / "vbios_version").write_text("113-M3\n")
    assert read_identities(root, answers()) == ([Identity(ADDRESS, "692", "113-M3")], [])


def test_huawei_is_asked_chip_by_chip(tmp_path):
    table = (
        "| npu-smi 24.1 Version: 24.1 |\n"
        "| 3     910B3 | OK | 90.1 36 0 / 0 |\n"
        "| 0 | 0000:10:00.0 | 0 0 / 0 3000 / 65536 |\n"
    )
    board = "Serial Number : 033\nFirmware Version : 7.5\n"
    asked = []

    def run(argv):
        asked.append(list(argv[1:]))
        return CommandResult(0, table if argv[1:] == ["info"] else board)

    found = read_identities(sysfs(tmp_path, "19e5:d802"), run)
    assert found == ([Identity(ADDRESS, "033", "7.5")], []), asked
    assert asked == [["info"], ["info", "-t", "board", "-i", "3"]]


def test_without_sysfs(tmp_path):
    with pytest.raises(PciError):
        read_identities(str(tmp_path / "none"), answers())
