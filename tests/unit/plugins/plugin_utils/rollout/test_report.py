# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of journals: of rollouts that ended well, badly, or not at all."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report import (
    ReportError,
    report,
    summary_of,
)

from tests.fakes.rollouts import (
    BEGAN,
    SLOW,
    TURN,
    Journal,
    good,
    interrupted,
    large,
    resumed,
    rollback,
    stopped,
)


def host_of(document, name):
    return next(row for row in document["hosts"] if row["host"] == name)


def steps_of(document, name):
    return [(step["step"], step["seconds"]) for step in host_of(document, name)["steps"]]


def cut():
    """Return the events of the interrupted journal, as they are read: without the line that was cut off."""
    return [json.loads(line) for line in interrupted().splitlines()[:-1]]


def counted(total):
    return total["requests"], total["ok"], total["server_errors"]


def test_a_good_rollout_of_two_clusters():
    document = report(good().events)
    assert (document["result"], document["reason"], document["clusters"]) == ("done", "", ["a", "b"])
    assert document["began"] == BEGAN and document["seconds"] == document["ended"] - BEGAN == 4 * sum(TURN.values())
    assert document["totals"]["hosts"] == document["totals"]["done"] == 4
    assert [(row["host"], row["cluster"], row["wave"], row["state"]) for row in document["hosts"]] == [
        ("a1", "a", 0, "done"), ("a2", "a", 1, "done"), ("a3", "a", 1, "done"), ("b1", "b", 2, "done"),
    ]  # fmt: skip
    assert steps_of(document, "a3") == [*TURN.items(), ("done", 0.0)]
    assert host_of(document, "a3")["seconds"] == sum(TURN.values())
    assert list(document["steps"]) == list(TURN)
    assert document["steps"]["apply"] == {"count": 4, "median_s": 60.0, "max_s": 60.0, "max_host": "b1"}
    assert [(wave["wave"], wave["failed"], wave["ended"] > wave["began"]) for wave in document["waves"]] == [
        (0, [], True), (1, [], True), (2, [], True),
    ]  # fmt: skip


def test_equal_changes_are_told_once_and_only_what_differs():
    (change,) = report(good().events)["changes"]
    assert change == {
        "instance": "chat",
        "lines": [
            {"what": "vllm_version", "before": "0.32.0", "after": "0.33.0"},
            {"what": "release", "before": "0.32.0", "after": "0.33.0"},
            {"what": "--max-num-seqs", "before": 128, "after": 256},
        ],
        "files": ["/etc/vllm/chat.yaml"],
        "hosts": ["a1", "a2", "a3", "b1"],
    }


def test_an_instance_that_is_new_and_variables():
    journal = Journal()
    journal.begin({"a": []})
    change = {"before": None, "after": {"model": "m", "image": None}, "env": {"OMP_NUM_THREADS": ["4", None]}}
    journal.add("host", host="a1", cluster="a", wave=0, changes={"new": change})
    assert report(journal.events)["changes"][0]["lines"] == [
        {"what": "model", "before": None, "after": "m"},
        {"what": "OMP_NUM_THREADS", "before": "4", "after": None},
    ]


def test_stopped_at_the_canary():
    document = report(stopped().events)
    assert document["result"] == "stopped" and document["reason"].startswith("a1 is a canary and failed: throughput")
    canary = host_of(document, "a1")
    assert (canary["state"], canary["detail"]) == ("rolled_back", SLOW)
    assert steps_of(document, "a1")[-2:] == [("restore", 50.0), ("rolled_back", 0.0)]
    assert {row["host"]: row["state"] for row in document["hosts"]} == {
        "a1": "rolled_back", "a2": "untouched", "a3": "untouched",
    }  # fmt: skip
    (gate,) = document["gates"]
    assert not gate["passed"] and gate["before"]["tokens_per_second"] == 100
    assert gate["after"]["tokens_per_second"] == 33.1
    assert document["waves"][0]["failed"] == ["a1"]
    told = summary_of(document)
    assert told["failed"] == {"a1": SLOW} and told["unfinished"] == [] and told["totals"]["untouched"] == 2
    assert "hosts" not in told


def test_interrupted_in_the_middle_of_a_turn():
    document = report(cut())
    assert (document["result"], document["ended"]) == ("interrupted", None)
    assert document["last"] - BEGAN == sum(TURN.values()) + 35
    assert steps_of(document, "a2") == [("drain", 3.0), ("idle", 12.0), ("apply", 20.0)]
    assert [step.get("broke_off", False) for step in host_of(document, "a2")["steps"]] == [False, False, True]
    # What broke off says nothing of how long it takes.
    assert document["steps"]["apply"]["count"] == 1
    assert summary_of(document)["unfinished"] == ["a2"]
    assert report(cut(), running=True)["result"] == "running"


def test_gone_on_by_another_person():
    document = report(resumed().events)
    assert (document["result"], document["kind"], document["user"]) == ("done", "change", "alice")
    assert [(run["user"], run["kind"], run["result"]) for run in document["sessions"]] == [
        ("alice", "change", "interrupted"), ("bob", "resumed", "done"),
    ]  # fmt: skip
    # The hour between is in no step, and not in the time that it took.
    assert steps_of(document, "a2") == [
        ("drain", 3.0), ("idle", 12.0), ("apply", 20.0), ("drain", 1.0), ("apply", 40.0), ("done", 0.0),
    ]  # fmt: skip
    assert document["seconds"] == 2 * sum(TURN.values()) + 35 + 41
    assert [(row["host"], row["wave"], row["state"]) for row in document["hosts"]] == [
        ("a1", 0, "done"), ("a2", 1, "done"), ("a3", 1, "done"),
    ]  # fmt: skip


def test_a_rollback():
    document = report(rollback().events)
    assert (document["kind"], document["result"]) == ("rollback", "done")
    assert document["changes"][0]["lines"][0] == {"what": "vllm_version", "before": "0.33.0", "after": "0.32.0"}
    assert document["gates"] == [] and document["requests"]["total"]["requests"] == 0


def readings(*several):
    journal = Journal()
    journal.begin({"a": [["a1"]]})
    for gateway, started, frontends in several:
        named = {
            service: dict(zip(("requests", "ok", "server_errors"), values, strict=True))
            for service, values in frontends.items()
        }
        journal.add("gateway", gateway=gateway, started=started, frontends=named)
    return report(journal.events)["requests"]


def test_counters_are_differences_of_what_was_read():
    found = readings(
        ("g1", "1", {"chat": (100, 98, 2)}),
        ("g2", "5", {"chat": (10, 10, 0)}),
        ("g1", "1", {"chat": (150, 147, 3), "embed": (7, 7, 0)}),
        ("g2", "5", {"chat": (30, 30, 0)}),
        ("g1", "1", {"chat": (160, 157, 3), "embed": (9, 8, 1)}),
    )
    # A service that was not there at first began at 0.
    assert counted(found["total"]) == (89, 87, 2) and found["restarts"] == 0
    assert counted(found["services"]["chat"]) == (80, 79, 1) and counted(found["services"]["embed"]) == (9, 8, 1)
    assert counted(found["gateways"]["g1"]) == (69, 67, 2) and counted(found["gateways"]["g2"]) == (20, 20, 0)


@pytest.mark.parametrize("started", ["1", "2"])
def test_a_restart_begins_at_zero(started):
    """A drop says it even where the start does not, and the start where there is no drop."""
    requests = 20 if started == "1" else 130
    found = readings(
        ("g1", "1", {"chat": (100, 99, 1)}),
        ("g1", "1", {"chat": (120, 119, 1)}),
        ("g1", started, {"chat": (requests, requests, 0)}),
        ("g1", started, {"chat": (requests + 5, requests + 3, 2)}),
    )
    assert counted(found["total"]) == (25 + requests, 23 + requests, 2) and found["restarts"] == 1


def test_a_request_without_an_answer_is_no_success_and_no_error():
    found = readings(("g1", "1", {"chat": (100, 98, 2)}), ("g1", "1", {"chat": (224, 221, 2)}))
    assert counted(found["total"]) == (124, 123, 0)
    assert found["total"]["open"] == found["services"]["chat"]["open"] == found["gateways"]["g1"]["open"] == 1


def test_one_reading_counts_nothing():
    assert counted(readings(("g1", "1", {"chat": (100, 98, 2)}))["total"]) == (0, 0, 0)


def test_a_journal_with_odd_events_is_told_as_far_as_it_goes():
    journal = good()
    began = journal.events.pop(0)
    odd = [
        {"at": None, "event": "step", "host": "a1", "step": "drain"},
        {"event": "ended", "result": "failed"},
        {"at": BEGAN, "event": "step"},
        {"at": BEGAN, "event": "host", "host": "x9", "changes": ["no"], "wave": "first"},
        {"at": BEGAN, "event": "gate", "host": "a1", "verdicts": "none", "after": {"tokens_per_second": float("nan")}},
        {"at": BEGAN, "event": "gateway", "gateway": "gw", "frontends": [1]},
        {"at": BEGAN, "event": "wave", "wave": None},
        {"at": BEGAN, "event": "lunch", "host": "a1"},
        {"at": BEGAN, "event": "step", "host": "new", "step": "polish"},
        {"at": BEGAN - 50, "event": "step", "host": "new", "step": "done"},
    ]
    document = report([began, *odd, *journal.events])
    assert document["result"] == "done" and document["totals"]["hosts"] == 6
    # Clocks may go back; time does not.
    assert steps_of(document, "new") == [("polish", 0.0), ("done", 0.0)]
    # JSON has no NaN.
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("events", [[], [{"at": 1.0, "event": "step", "host": "a", "step": "drain"}]])
def test_what_is_no_journal_is_refused(events):
    with pytest.raises(ReportError, match="no event marks the begin of a rollout"):
        report(events)


def test_a_thousand_hosts():
    events = large().events
    began = time.monotonic()
    document = report(events)
    print(f"{len(events)} events reported on in {time.monotonic() - began:.2f} s")
    assert document["totals"]["done"] == 990 and document["totals"]["rolled_back"] == 10
    assert len(document["changes"]) == 1 and len(document["gates"]) == 1000
    assert len(json.dumps(summary_of(document))) < 6000


def test_moves_of_the_shared_address_are_counted():
    journal = Journal()
    journal.begin({"a": [["a1"]]})
    for gateway, arrivals in (("g1", 7), ("g2", 3), ("g1", 7), ("g2", 5), ("g1", 8), ("old", None), ("old", 4)):
        journal.add("gateway", gateway=gateway, started="1", frontends={}, address_arrivals=arrivals)
    assert report(journal.events)["requests"]["address_moves"] == 3
    assert readings(("g1", "1", {}), ("g1", "1", {}))["address_moves"] == 0
