# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.ledger import (
    FLAP_WINDOW,
    FLAPS,
    Ledger,
    LedgerError,
    Run,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import Event, Fault

CHIP = "0000:5d:00.0"
OFF_THE_BUS = Event(Fault("xid", "79", "off the bus", "isolate_host", "boot"), CHIP)
ROW = Event(Fault("xid", "64", "no spare row", "isolate_host", "hand"), CHIP)
COPY = Event(Fault("xid", "39", "copy engine", "restart_instance", "restart"), CHIP)
PROGRAM = Event(Fault("xid", "13", "a program", "report"), CHIP)
FIRST = {"chat": Run("a", 10.0, True)}
SECOND = {"chat": Run("b", 90.0, True)}


def ledger_with(*events, runs=None):
    ledger = Ledger()
    for event in events:
        ledger.record(event, FIRST if runs is None else runs, 100.0, "boot-1")
    return ledger


def test_a_report_is_counted_and_marks_nothing():
    ledger = ledger_with(PROGRAM, PROGRAM)
    assert ledger.marks == {} and ledger.counts == {("xid 13", CHIP): 2}


def test_a_fault_marks_once_and_counts_each_time():
    ledger = Ledger()
    assert len(ledger.record(OFF_THE_BUS, FIRST, 100.0, "boot-1", 3)) == 1
    assert ledger.record(OFF_THE_BUS, FIRST, 101.0, "boot-1", 2) == []
    (mark,) = ledger.of_instance("chat")
    assert (mark.count, mark.reason) == (5, f"xid 79 of {CHIP}: off the bus")


def test_the_strongest_reason_is_the_first():
    ledger = ledger_with(COPY, ROW)
    assert [mark.fault for mark in ledger.of_instance("chat")] == ["xid 64", "xid 39"]


def test_a_new_start_ends_what_it_can_and_nothing_else():
    ledger = ledger_with(COPY)
    ledger.advance(FIRST, "boot-1")
    assert ledger.to_prove(FIRST, 200.0) == [] and ledger.to_restart(FIRST) == ["chat"]
    ledger.advance(SECOND, "boot-1")
    assert ledger.to_prove(SECOND, 200.0) == ["chat"] and ledger.to_restart(SECOND) == []
    ledger.record(ROW, SECOND, 110.0, "boot-1")
    assert ledger.to_prove(SECOND, 200.0) == []


def test_an_instance_is_not_started_again_for_a_chip_that_stays_sick():
    assert ledger_with(COPY, OFF_THE_BUS).to_restart(FIRST) == []


def test_an_instance_that_is_not_ready_is_not_asked_for_a_proof():
    ledger = ledger_with(COPY)
    starting = {"chat": Run("b", 90.0, False)}
    ledger.advance(starting, "boot-1")
    assert ledger.to_prove(starting, 200.0) == []


def test_a_stopped_unit_is_no_new_start():
    ledger = ledger_with(COPY)
    stopped = {"chat": Run("", 0.0, False)}
    ledger.advance(stopped, "boot-1")
    assert not ledger.of_instance("chat")[0].proving


def test_a_boot_ends_what_the_table_allows_and_a_person_the_rest():
    ledger = ledger_with(OFF_THE_BUS, ROW)
    ledger.advance(SECOND, "boot-2")
    assert ledger.to_prove(SECOND, 200.0) == []
    assert ledger.clear("0000:1b:00.0") == 0
    assert ledger.clear(CHIP) == 2
    assert ledger.to_prove(SECOND, 200.0) == ["chat"]
    assert len(ledger.proven("chat", 200.0)) == 2 and ledger.marks == {}


def test_only_lost_chips_await_a_boot_and_only_until_the_proof():
    reset = Event(Fault("xid", "95", "a row", "reset_chip", "boot"), CHIP)
    ledger = ledger_with(OFF_THE_BUS, ROW, COPY, reset, runs={**FIRST, "other": Run("c", 10.0, True)})
    assert "reset_chip" in {mark.action for mark in ledger.marks.values()}
    assert ledger.awaiting_boot() == {("xid 79", CHIP): f"xid 79 of {CHIP}: off the bus"}
    ledger.advance({**FIRST, "other": Run("c", 10.0, True)}, "boot-2")
    assert ledger.awaiting_boot() == {}


def test_a_fault_that_comes_again_before_the_proof_begins_anew():
    ledger = ledger_with(OFF_THE_BUS)
    ledger.advance(SECOND, "boot-2")
    ledger.record(OFF_THE_BUS, SECOND, 120.0, "boot-2")
    assert ledger.to_prove(SECOND, 200.0) == []
    ledger.advance(SECOND, "boot-2")
    assert ledger.to_prove(SECOND, 200.0) == []


def test_a_failed_proof_keeps_the_instance_out_and_says_why():
    ledger = ledger_with(OFF_THE_BUS)
    ledger.advance(SECOND, "boot-2")
    ledger.failed("chat", "no token")
    assert ledger.of_instance("chat")[0].reason.endswith("(the proof failed: no token)")
    assert ledger.to_prove(SECOND, 200.0) == ["chat"]


def test_a_flapping_chip_needs_a_person():
    ledger, runs = Ledger(), FIRST
    for turn in range(FLAPS):
        ledger.record(COPY, runs, 100.0 + turn, "boot-1")
        runs = {"chat": Run(f"run-{turn}", 0.0, True)}
        ledger.advance(runs, "boot-1")
        ledger.proven("chat", 100.5 + turn)
    ledger.record(COPY, runs, 110.0, "boot-1")
    (mark,) = ledger.of_instance("chat")
    assert mark.back == "hand" and "3 times within a day" in mark.reason
    assert ledger.to_restart(runs) == []
    ledger.marks.clear()
    ledger.record(COPY, runs, 110.0 + FLAP_WINDOW, "boot-1")
    assert ledger.of_instance("chat")[0].back == "restart"


def test_a_flapping_chip_leaves_once_each_time_and_waits_longer():
    ledger, runs, now = Ledger(), FIRST, 100.0
    for turn, hold in enumerate((0.0, 300.0, 1800.0)):
        # Fault, cleared, fault, before anything was proven: it leaves once.
        assert len(ledger.record(COPY, runs, now, "boot-1")) == 1
        assert ledger.record(COPY, runs, now + 1, "boot-1") == []
        runs = {"chat": Run(f"run-{turn}", 0.0, True)}
        ledger.advance(runs, "boot-1")
        (mark,) = ledger.of_instance("chat")
        assert ledger.to_prove(runs, now + hold - 1) == ([] if hold else ["chat"])
        assert (f"for {hold / 60:.0f} minutes at least" in mark.reason) is bool(hold)
        now += hold
        assert ledger.to_prove(runs, now) == ["chat"]
        ledger.proven("chat", now)
    ledger.record(COPY, runs, now + 1, "boot-1")
    assert ledger.of_instance("chat")[0].back == "hand"


def test_a_person_need_not_wait_and_the_chip_begins_anew():
    ledger = Ledger(returns={CHIP: [50.0, 60.0], "other": [50.0]})
    ledger.record(COPY, FIRST, 100.0, "boot-1")
    assert ledger.clear(CHIP) == 1 and ledger.to_prove(FIRST, 101.0) == ["chat"]
    assert ledger.returns == {"other": [50.0]}
    ledger.clear("all")
    assert ledger.returns == {}


def test_a_fault_of_no_chip_holds_nothing():
    ledger = Ledger(returns={"": [50.0]})
    ledger.record(Event(COPY.fault, ""), FIRST, 100.0, "boot-1")
    ledger.advance(SECOND, "boot-1")
    assert ledger.to_prove(SECOND, 101.0) == ["chat"]


def test_a_clock_that_was_set_back_holds_no_chip():
    ledger = Ledger(returns={CHIP: [50.0]})
    ledger.record(COPY, FIRST, 100.0, "boot-1")
    ledger.advance(SECOND, "boot-1")
    assert ledger.to_prove(SECOND, 101.0) == [] and ledger.to_prove(SECOND, 99.0) == ["chat"]


def test_a_line_from_before_the_start_of_the_instance_marks_nothing_that_a_start_ends():
    ledger = Ledger()
    assert ledger.record(COPY, FIRST, 100.0, "boot-1", at=9.0) == []
    assert ledger.record(COPY, FIRST, 100.0, "boot-1", at=11.0)
    assert Ledger().record(OFF_THE_BUS, FIRST, 100.0, "boot-1", at=9.0)


def test_an_instance_that_is_gone_has_no_marks():
    ledger = ledger_with(ROW)
    ledger.advance({}, "boot-1")
    assert ledger.marks == {}


def test_the_state_is_saved_and_read():
    ledger = ledger_with(COPY, ROW)
    ledger.clear("all")
    ledger.proven("chat", 101.0)
    ledger.record(OFF_THE_BUS, FIRST, 102.0, "boot-1")
    again = Ledger.from_document(json.loads(json.dumps(ledger.document())))
    assert (again.marks, again.returns) == (ledger.marks, ledger.returns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema=2), "schema"),
        (lambda data: data.update(marks={}), "marks is no list"),
        (lambda data: data.update(returns=[]), "returns is no object"),
        (lambda data: data["returns"].update(x=["soon"]), "no list of times"),
        (lambda data: data["marks"][0].pop("chip"), "other keys"),
        (lambda data: data["marks"][0].update(since="now"), "since of a mark is 'now'"),
        (lambda data: data["marks"][0].update(back="never"), "ends by 'never'"),
    ],
)
def test_damage_is_named(change, message):
    data = ledger_with(COPY).document()
    change(data)
    with pytest.raises(LedgerError, match=message):
        Ledger.from_document(data)


@pytest.mark.parametrize("data", [None, [], "x", 1])
def test_anything_else_is_damage(data):
    with pytest.raises(LedgerError):
        Ledger.from_document(data)


def test_a_record_that_comes_after_a_reset_and_is_older_is_no_fault():
    ledger = Ledger()
    ledger.record(
        Event(Fault("log", "reset_succeeded", "x", "report", clears=True), CHIP), FIRST, 120.0, "boot-1", 1, 50.0
    )
    assert ledger.record(OFF_THE_BUS, FIRST, 121.0, "boot-1", 1, 49.0) == []
    assert len(ledger.record(ROW, FIRST, 121.0, "boot-1", 1, 49.0)) == 1
    assert len(ledger.record(OFF_THE_BUS, FIRST, 121.0, "boot-1", 1, 51.0)) == 1
    other = Event(OFF_THE_BUS.fault, "0000:1b:00.0")
    assert len(ledger.record(other, FIRST, 121.0, "boot-1", 1, 49.0)) == 1
    # Without a time, or before the boot by a clock that was wrong.
    assert len(Ledger(resets={CHIP: 50.0}).record(OFF_THE_BUS, FIRST, 121.0, "boot-1")) == 1
    assert len(Ledger().record(OFF_THE_BUS, FIRST, 121.0, "boot-1", 1, -9.0)) == 1


def test_a_reset_ends_what_a_boot_would_end_and_the_proof_decides():
    ledger = ledger_with(OFF_THE_BUS, ROW)
    ledger.record(Event(Fault("xid", "154.none", "x", "ignore", clears=True), "0000:1b:00.0"), FIRST, 120.0, "boot-1")
    assert not any(mark.proving for mark in ledger.marks.values())
    ledger.record(Event(Fault("xid", "154.none", "x", "ignore", clears=True), CHIP), FIRST, 120.0, "boot-1")
    assert {mark.fault: mark.proving for mark in ledger.marks.values()} == {"xid 79": True, "xid 64": False}


def test_a_state_that_the_tool_no_longer_reports_has_ended():
    lost = Event(Fault("state", "the chip is lost", "x", "isolate_host", "boot"), CHIP)
    ledger = ledger_with(lost, OFF_THE_BUS)
    ledger.end_states({(lost.fault.name, CHIP)})
    assert not any(mark.proving for mark in ledger.marks.values())
    ledger.end_states(set())
    assert {mark.fault: mark.proving for mark in ledger.marks.values()} == {
        "state the chip is lost": True,
        "xid 79": False,
    }
