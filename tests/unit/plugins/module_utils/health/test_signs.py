# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.signs import (
    InstanceSigns,
    proof_problem,
    read_metrics,
    states_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.counters import ChipCounters
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import FaultBook
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

RUNNING, WAITING, TOKENS = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"
CORRUPTED = "vllm:corrupted_requests_total"
BAD = "a bad row of memory could not be replaced"


@pytest.fixture(scope="module")
def book():
    return FaultBook.from_document(faults_of_host("cuda"))


def test_metrics_of_several_engines_are_one():
    text = (
        f'# HELP x\n{RUNNING}{{engine="0",model_name="a {{b}}"}} 2\n{RUNNING}{{engine="1"}} 1.0\n{TOKENS} NaN\n'
        f"{TOKENS} many\nother 7\n"
    )
    assert read_metrics(text) == {RUNNING: 3.0}


def test_requests_without_tokens_are_told_once():
    signs = InstanceSigns(10)
    metrics = {RUNNING: 1.0, TOKENS: 5.0}
    assert [signs.saw("a", metrics, 200, now) for now in (0, 9, 10, 20)] == [[], [], ["no_tokens"], []]
    assert signs.saw("a", {RUNNING: 1.0, TOKENS: 6.0}, 200, 21) == []
    assert signs.saw("a", {RUNNING: 1.0, TOKENS: 6.0}, 200, 31) == ["no_tokens"]
    # Another run of the unit has done nothing wrong.
    assert signs.saw("b", {RUNNING: 1.0, TOKENS: 6.0}, 200, 45) == []


def test_a_site_that_waits_for_ever():
    signs = InstanceSigns(0)
    assert all(signs.saw("a", {RUNNING: 1.0}, 200, now) == [] for now in (0, 1e6))


def test_an_idle_engine_hangs_not():
    signs = InstanceSigns(10)
    assert all(signs.saw("a", {RUNNING: 0.0, TOKENS: 5.0}, 200, now) == [] for now in (0, 100))
    assert signs.saw("a", {RUNNING: 1.0, TOKENS: 5.0}, 200, 105) == []


def test_how_long_nobody_has_asked():
    signs = InstanceSigns(10)
    assert signs.idle_for(5) == 0
    signs.saw("a", {RUNNING: 0.0, TOKENS: 5.0}, 200, 5)
    signs.saw("a", {RUNNING: 0.0, TOKENS: 5.0}, 200, 8)
    assert signs.idle_for(9) == 4
    # Short requests between two looks.
    signs.saw("a", {RUNNING: 0.0, TOKENS: 6.0}, 200, 10)
    assert signs.idle_for(11) == 1
    signs.saw("a", {RUNNING: 0.0, WAITING: 1.0, TOKENS: 6.0}, 200, 12)
    assert signs.idle_for(20) == 0


def test_an_engine_is_dead_when_it_says_so_twice():
    signs = InstanceSigns(10)
    assert [signs.saw("a", {}, status, 0) for status in (503, 200, 503, 503, 503)] == [[], [], [], ["engine_dead"], []]
    assert signs.saw("b", {}, 0, 0) == []


def test_more_corrupted_answers_are_a_fault_each_time_and_old_ones_none():
    signs = InstanceSigns(10)
    found = [signs.saw("a", {CORRUPTED: count}, 200, 0) for count in (7.0, 7.0, 8.0, 8.0, 9.0)]
    assert found == [[], [], ["corrupted_answers"], [], ["corrupted_answers"]]


def test_states_of_the_tool_become_faults(book):
    chips = [
        ChipCounters("0000:5d:00.0", faults=(BAD, "something new"), link_width=8, link_width_max=16),
        ChipCounters("0000:1b:00.0", link_width=0, link_width_max=16),
    ]
    found = states_of(chips, book)
    assert {name for name, _chip in found} == {f"state {BAD}", "state something new", "pcie link_narrow"}
    assert found[f"state {BAD}", "0000:5d:00.0"].fault.action == "isolate_host"
    assert found["state something new", "0000:5d:00.0"].fault.action == "report"


def test_a_proof_wants_every_chip_of_the_instance_and_no_fault_of_it(book):
    well, bad = ChipCounters("0000:1b:00.0", faults=("ECC is off",)), ChipCounters("0000:5d:00.0", faults=(BAD,))
    assert proof_problem(["0000:1b:00.0"], [well, bad], book) == ""
    assert proof_problem(["0000:5d:00.0"], [well], book) == "the vendor's tool does not list 0000:5d:00.0"
    assert proof_problem(["0000:5d:00.0"], [well, bad], book) == f"state {BAD} of 0000:5d:00.0"
    assert proof_problem([], [well, bad], book) == f"state {BAD} of 0000:5d:00.0"


def test_a_chip_that_the_tool_does_not_list_has_a_fault(book):
    well = ChipCounters("0000:1b:00.0")
    found = states_of([well], book, ["0000:1b:00.0", "0000:5d:00.0"])
    assert [(name, chip, event.fault.action) for (name, chip), event in found.items()] == [
        ("state the tool does not list the chip", "0000:5d:00.0", "isolate_host")
    ]
    assert states_of([well, well], book, ["0000:1b:00.0", "0000:5d:00.0"]) == {}
    # npu-smi shows no address of an Ascend 950DT, and amd-smi may not say which chip has which.
    unknown = [ChipCounters("npu 0"), ChipCounters("npu 1")]
    assert states_of(unknown, book, ["0000:1b:00.0", "0000:5d:00.0"]) == {}
    assert len(states_of(unknown[:1], book, ["0000:1b:00.0", "0000:5d:00.0"])) == 2


@pytest.mark.parametrize("stack", ["cuda", "rocm", "cann"])
def test_every_vendors_catalogue_knows_a_missing_chip(stack):
    book = FaultBook.from_document(faults_of_host(stack))
    ((_name, event),) = states_of([], book, ["0000:5d:00.0"]).items()
    assert (event.fault.action, event.fault.back) == ("isolate_host", "boot")
