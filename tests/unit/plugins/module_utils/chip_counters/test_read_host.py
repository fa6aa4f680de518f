# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters of stand-ins for every vendor's machines, healthy and with faults."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.chip_counters.read_host import read_counters
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    NOT_INSTALLED,
    CommandResult,
)

from tests.standins import daemons
from tests.standins.tool import answer
from tests.unit.standins import test_amd, test_huawei, test_nvidia

MACHINES = {"hgx_h200": ("cuda", 8), "l40s_pcie": ("cuda", 4), "mi300x": ("rocm", 8), "atlas_a3": ("cann", 16)}
TOOLS = ("nvidia-smi", "amd-smi", "npu-smi")


def machine(root, name):
    """Return a machine with a driver that is loaded."""
    stack = MACHINES[name][0]
    if stack == "cuda":
        place = test_nvidia.machine(root, name)
        manager = answer("nvidia-fabricmanager", [test_nvidia.VERSION], place)
        daemons.enter(place, 1, "nvidia-fabricmanager", manager.daemon, manager.note, cgroup="0::/")
        return place
    return test_amd.host(root, name) if stack == "rocm" else test_huawei.installed(test_huawei.host(root, name))


def read(place, stack, tools=TOOLS):
    def run(argv):
        tool = argv[0].rpartition("/")[2]
        # AMD's tool is not on the path of Ansible's modules.
        if tool not in tools or (tool == "amd-smi" and argv[0] == tool):
            return NOT_INSTALLED
        said = answer(tool, list(argv[1:]), place)
        return CommandResult(said.rc, said.out, said.err)

    return read_counters(stack, run)


def test_a_board_without_its_fabric_manager(tmp_path):
    found = read(test_nvidia.machine(tmp_path, "hgx_h200"), "cuda")
    assert {chip.faults for chip in found.chips} == {("the chip is joining the NVLink fabric",)}


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine(tmp_path, name):
    stack, count = MACHINES[name]
    place = machine(tmp_path, name)
    found = read(place, stack)
    assert found.problem == ""
    assert [chip.chip for chip in found.chips] == place.machine().chips()
    assert len(found.chips) == count
    assert not any(chip.faults or chip.slowing for chip in found.chips)
    assert all(chip.errors for chip in found.chips)


@pytest.mark.parametrize("name", ["hgx_h200", "mi300x", "atlas_a3"])
def test_a_memory_error_is_that_of_its_chip(tmp_path, name):
    stack, _count = MACHINES[name]
    place = machine(tmp_path, name)
    chips = place.machine().chips()
    (place.state / "ecc").write_text(f"{chips[3]} 2\n")
    found = read(place, stack).chips
    assert [chip.chip for chip in found if 2 in chip.errors.values()] == [chips[3]]


@pytest.mark.parametrize("name", ["hgx_h200", "mi300x"])
def test_a_chip_that_is_too_hot(tmp_path, name):
    place = machine(tmp_path, name)
    chips = place.machine().chips()
    (place.state / "hot").write_text(chips[1])
    found = {chip.chip: chip for chip in read(place, MACHINES[name][0]).chips}
    assert found[chips[1]].slowing
    assert sum(found[chips[1]].slowed.values()) > 0
    assert not found[chips[0]].slowing


def test_a_narrow_link(tmp_path):
    place = machine(tmp_path, "hgx_h200")
    (place.state / "narrow").write_text(place.machine().chips()[0])
    chip = read(place, "cuda").chips[0]
    assert (chip.link_width, chip.link_width_max) == (8, 16)


@pytest.mark.parametrize("name", ["hgx_h200", "mi300x", "atlas_a3"])
def test_without_the_tool_there_is_one_sentence(tmp_path, name):
    found = read(machine(tmp_path, name), MACHINES[name][0], tools=())
    assert found.chips == ()
    assert "reports no chips" in found.problem


def test_a_host_without_accelerators_has_nothing_to_read(tmp_path):
    def run(argv):
        raise AssertionError(argv)

    assert read_counters("cpu", run).problem == ""
