# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watchdog of a group decides, against a clock."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.host_group.watch import Watch

PEER = "10.0.0.2"


def watch(*addresses, stall=0):
    found = Watch(list(addresses or [PEER]), stall)
    found.begin("one")
    return found


def test_a_lost_connection_ends_this_side_after_some_seconds():
    found = watch()
    assert found.connections(0, {PEER: 3}) == ""
    assert found.complete
    assert found.connections(2, {}) == ""
    assert not found.complete
    assert found.connections(7, {}) == ""
    assert found.connections(8, {}) == f"no connection with {PEER} is left"


def test_connections_that_come_back_in_time_end_nothing():
    found = watch()
    found.connections(0, {PEER: 3})
    found.connections(2, {})
    assert found.connections(4, {PEER: 1}) == ""
    assert found.connections(6, {}) == "" and found.connections(11, {}) == ""


def test_a_host_that_never_was_connected_is_waited_for():
    found = watch()
    assert [found.connections(now, {}) for now in (0, 100, 1000)] == ["", "", ""]
    assert not found.complete


def test_a_new_run_of_the_unit_is_not_blamed_for_the_one_before():
    found = watch()
    found.connections(0, {PEER: 3})
    found.connections(2, {})
    found.begin("two")
    assert found.connections(100, {}) == ""
    found.begin("two")
    found.connections(101, {PEER: 1})
    assert found.connections(103, {}) == ""


def test_all_hosts_are_needed():
    found = watch(PEER, "10.0.0.3")
    found.connections(0, {PEER: 3})
    assert not found.complete
    found.connections(1, {PEER: 3, "10.0.0.3": 1})
    assert found.complete
    found.connections(2, {PEER: 3})
    assert found.connections(8, {PEER: 3}) == "no connection with 10.0.0.3 is left"


def test_a_power_loss_is_seen_by_silence_and_a_short_cut_is_not():
    found = watch()
    found.connections(0, {PEER: 3})
    found.answers(0, {PEER: True})
    assert found.answers(2, {PEER: False}) == ""
    # A cut of ten seconds.
    assert found.answers(12, {PEER: False}) == ""
    assert found.answers(14, {PEER: True}) == ""
    assert found.answers(30, {PEER: False}) == ""
    assert found.answers(50, {PEER: False}) == f"{PEER} has not answered for 20 s"


def test_a_host_behind_a_firewall_that_never_answers_is_not_called_silent():
    found = watch()
    found.connections(0, {PEER: 3})
    assert [found.answers(now, {PEER: False}) for now in (0, 30, 300)] == ["", "", ""]


def test_a_prefill_host_is_silent_after_a_while_and_only_if_it_has_answered():
    found = watch()
    assert found.silences(0, {PEER: True, "10.0.0.3": False}) == {}
    assert found.silences(10, {PEER: False, "10.0.0.3": False}) == {}
    assert found.silences(29, {PEER: False, "10.0.0.3": False}) == {}
    assert found.silences(30, {PEER: False, "10.0.0.3": False}) == {PEER: 20}
    assert found.silences(32, {PEER: True, "10.0.0.3": False}) == {}


def test_requests_that_make_no_progress():
    found = watch(stall=300)
    assert found.progress(0, 2, 10) == ""
    assert found.progress(299, 2, 10) == ""
    assert found.progress(300, 2, 10) == "2 requests have run for 300 s without a token"
    assert found.progress(301, 2, 11) == ""
    assert found.progress(500, 0, 11) == ""
    assert watch(stall=0).progress(1e6, 2, -1.0) == ""
