# SPDX-License-Identifier: GPL-3.0-or-later
"""Journals that a full disk, a kill or a hand has damaged: a state and a report, or one error; never a crash."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import (
    append,
    is_running,
    may_run,
    read,
    shorten,
    state_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report import (
    ReportError,
    report,
    summary_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.report_page import data

from tests.fakes.fuzz import assert_enough, assert_presentable, cases, mutated, mutated_text, told_apart, within

COUNTERS = {"requests": 10, "ok": 9, "client_errors": 1, "server_errors": 0, "denied": 0}
CHANGE = {"chat": {"args": {"seed": [1, 2]}, "env": {}, "files": ["/etc/vllm/chat.yaml"], "before": {"image": "a"}}}
EVENTS = [
    {
        "at": 1790000000.5,
        "event": "begun",
        "id": "20261122T030100Z-ab12",
        "kind": "rollout",
        "user": "alice",
        "controller": "laptop",
        "pid": 4711,
        "pid_started": 8,
        "boot": "b",
        "clusters": ["a"],
        "waves": [["gpu-1"], ["gpu-2"]],
        "options": {"batch": "1"},
        "summary": "one flag",
    },
    {"at": 1790000001, "event": "host", "host": "gpu-1", "cluster": "a", "wave": 0, "changes": CHANGE, "states": {}},
    {"at": 1790000002, "event": "host", "host": "gpu-2", "cluster": "a", "wave": 1, "states": {"chat": "0f"}},
    {"at": 1790000003, "event": "wave", "wave": 0, "state": "begun"},
    {"at": 1790000004, "event": "gateway", "gateway": "gw-1", "started": "1-2", "frontends": {"chat": COUNTERS}},
    {"at": 1790000005, "event": "step", "host": "gpu-1", "step": "drain", "detail": ""},
    {
        "at": 1790000006,
        "event": "gate",
        "host": "gpu-1",
        "instance": "chat",
        "verdicts": [{"name": "answer", "ok": True, "detail": "The fleet is ready."}],
        "before": {"tokens_per_second": 10.5},
        "after": {"tokens_per_second": 11},
    },
    {"at": 1790000007, "event": "step", "host": "gpu-1", "step": "done", "detail": "", "states": {"chat": "1f"}},
    {"at": 1790000008, "event": "step", "host": "gpu-2", "step": "failed", "detail": "no memory\nleft"},
    {"at": 1790000009, "event": "gateway", "gateway": "gw-1", "started": "1-2", "frontends": {"chat": COUNTERS},
     "address_arrivals": 3},
    {"at": 1790000010, "event": "wave", "wave": 0, "state": "ended", "failed": ["gpu-2"]},
    {"at": 1790000011, "event": "stopped", "reason": "1 of 2 hosts failed"},
    {"at": 1790000012, "event": "ended", "result": "stopped"},
]  # fmt: skip


def lines(choose):
    """Return the text of a journal in which values and characters are changed."""
    events = mutated(choose, EVENTS)
    events = events if isinstance(events, list) else [events]
    text = "".join(json.dumps(event, default=lambda _value: None, skipkeys=True) + "\n" for event in events)
    return mutated_text(choose, text) if choose.random() < 0.4 else text


def test_whatever_a_journal_holds_it_is_a_state_and_a_report_or_one_error(tmp_path):
    path, reported = tmp_path / "journal.jsonl", 0
    for label, choose in cases("journal", 300):
        with told_apart(label):
            path.write_bytes(lines(choose).encode("utf-8", "surrogatepass"))
            events = within(60, lambda: read(str(path)))
            state = within(60, lambda events=events: state_of(events))
            is_running(state.begun)
            may_run(state.begun)
            json.dumps([state.failed(), state.unfinished(), state.changed(), state.untouched()])
            assert all(len(shorten(detail)) < 400 for detail in state.details.values())
            try:
                document = within(60, lambda events=events: report(events))
            except ReportError as exc:
                assert_presentable(str(exc), 500)
                continue
            reported += 1
            json.dumps(summary_of(document), allow_nan=False)
            json.dumps(document, allow_nan=False)
            data(document)
    assert_enough(reported, 100, "reported")


def test_a_journal_goes_on_after_damage(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    for label, choose in cases("journal-append", 50):
        with told_apart(label):
            (tmp_path / "journal.jsonl").write_bytes(lines(choose).encode("utf-8", "surrogatepass"))
            append(path, {"event": "ended", "result": "done"}, 1790000100)
            assert state_of(read(path)).result == "done"
