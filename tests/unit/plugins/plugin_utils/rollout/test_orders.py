# SPDX-License-Identifier: GPL-3.0-or-later
"""The orders of a rollout; tests/unit/plugins/action/test_rollout_actions.py has them in plays."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import append, read
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.orders import (
    end_of,
    orders_after_wave,
    orders_of_host,
)

ROLLOUT = {
    "id": "r1", "kind": "change", "user": "op", "controller": "c1", "waves": [{}, {}],
    "hosts": {"fra-1": {"words": "chat: new"}},
}  # fmt: skip
NOTHING = {"detail": "", "failed": {}, "slots": {}, "measured": [], "gates": []}


def test_a_host_gets_its_plan_and_the_mark_of_the_rollout():
    orders = orders_of_host("fra-1", ROLLOUT, NOTHING)
    assert orders["turn"] == {"words": "chat: new"}
    assert orders["mark"] == {"id": "r1", "kind": "change", "user": "op", "controller": "c1"}
    assert orders_of_host("fra-2", ROLLOUT, NOTHING)["turn"] == {}


def test_what_failed_is_put_into_words_and_figures_go_by_instance():
    gates = [{"item": "chat", "figures": {"requests": 8}}, {"item": "silent"}]
    failed = {"msg": "\n".join(f"line {number}" for number in range(9))}
    orders = orders_of_host("fra-1", ROLLOUT, {**NOTHING, "detail": "first;", "failed": failed, "gates": gates})
    assert orders["detail"].startswith("first; line 0\nline 1") and orders["detail"].endswith("line 8")
    assert orders["short"] == "first; line 0 line 1 line 2 ... (the rest is in the report)"
    assert orders["figures"] == {"chat": {"requests": 8}}


def test_a_rollout_stops_after_a_wave_but_not_after_the_last(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    append(path, {"event": "stopped", "reason": "fra-1 went first and failed"})
    assert orders_after_wave(path, ROLLOUT, 0) == {"stop": "fra-1 went first and failed"}
    assert orders_after_wave(path, ROLLOUT, 1) == {"stop": ""}


def test_the_end_is_read_from_the_journal_and_nothing_is_written(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    append(path, {"event": "host", "host": "fra-1", "cluster": "fra"})
    append(path, {"event": "step", "host": "fra-1", "step": "done"})
    append(path, {"event": "ended", "result": "done"})
    before = read(path)
    assert end_of(path) == {"journal": path, "result": "done", "message": "1 of 1 hosts are done"}
    assert read(path) == before
    with pytest.raises(OSError):
        end_of(str(tmp_path / "missing"))
