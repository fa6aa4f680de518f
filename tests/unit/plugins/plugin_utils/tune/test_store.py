# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import boot_id, started_at
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import Amount
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.goal import Goal
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.schedule import Rules
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.store import Store, goal_of, rules_of, step_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.variants import TuneError

from tests.fakes.benches import CHAT, PLAN, taken

GOAL, RULES = Goal("ttft_ms", "chat", 16, {"itl_p99_ms": 10}), Rules(3, 0.1)
MARLIN = {**PLAN, "argv": [*PLAN["argv"], "--moe-backend", "marlin"]}


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path), "gpu/1", "chat")
    store.begin({"current": {}, "marlin": {"args": {}}}, GOAL, RULES, CHAT, Amount())
    store.keep_plan("current", PLAN)
    store.keep_plan("marlin", MARLIN)
    return store


def keep(store, variant, number, **figures):
    records, step = store.records(store.plan(variant)), step_of(store.settings())
    with records.opened():
        made = records.record(step, number, {"requests": step.requests}, taken(**figures))
        records.keep(step, number, {**made, "start_seconds": 40.0})


def test_the_settings_come_back(store, tmp_path):
    settings = store.settings()
    assert (goal_of(settings), rules_of(settings)) == (GOAL, RULES)
    assert (step_of(settings).name, step_of(settings).requests) == ("chat-c16", 64)
    assert store.directory == tmp_path / "gpu_1/chat"


def test_measurements_are_found_by_their_plan(store):
    keep(store, "current", 1, speed=100.0, ttft=20.0, itl=5.0, joules=1536)
    keep(store, "marlin", 2, speed=200.0)
    found = store.taken(["current", "marlin"], step_of(store.settings()), 3)
    assert found.rounds["current"] == {
        1: {"output_tokens_per_second": 100.0, "ttft_ms": 20.0, "tpot_ms": pytest.approx(3.034, abs=0.001),
            "itl_p99_ms": 5.0, "joules_per_token": 1.0, "start_seconds": 40.0}
    }  # fmt: skip
    assert set(found.rounds["marlin"]) == {2} and found.failures == {}
    # Another plan of the same name has no measurements.
    store.keep_plan("marlin", {**MARLIN, "env": {}})
    assert store.taken(["marlin"], step_of(store.settings()), 3).rounds["marlin"] == {}


def test_a_failure_belongs_to_its_plan(store):
    store.keep_failure("marlin", "no memory")
    step = step_of(store.settings())
    assert store.taken(["current", "marlin"], step, 3).failures == {"marlin": "no memory"}
    store.keep_plan("marlin", {**MARLIN, "env": {}})
    assert store.taken(["current", "marlin"], step, 3).failures == {}


def test_the_tune_continues_from_a_copy_of_its_directory(store, tmp_path):
    keep(store, "current", 1)
    keep(store, "marlin", 1)
    store.keep_failure("marlin", "round 2: no memory")
    shutil.copytree(tmp_path, tmp_path.with_name("later"))
    later = Store(str(tmp_path.with_name("later")), "gpu/1", "chat")
    later.check_free()
    later.begin({"current": {}, "marlin": {"args": {}}, "new": {"args": {}}}, GOAL, Rules(4, 0.1), CHAT, Amount())
    later.keep_plan("new", {**PLAN, "env": {"A": "1"}})
    names, step = ["current", "marlin", "new"], step_of(later.settings())
    found = later.taken(names, step, 4)
    assert {name: set(rounds) for name, rounds in found.rounds.items()} == {"current": {1}, "marlin": {1}, "new": set()}
    assert found.failures == {"marlin": "round 2: no memory"}


def test_forgotten_measurements_are_taken_again(store):
    keep(store, "current", 1)
    store.keep_failure("marlin", "no memory")
    store.forget(["current", "marlin"])
    found = store.taken(["current", "marlin"], step_of(store.settings()), 3)
    assert found.rounds["current"] == {} and found.failures == {}


def test_a_tune_that_still_runs_is_refused(store):
    store.check_free()
    path = store.directory / "tune.json"
    settings = json.loads(path.read_text())
    pid = os.getpid()
    settings["process"].update(pid=pid, pid_started=started_at(pid), boot=boot_id())
    path.write_text(json.dumps(settings))
    with pytest.raises(TuneError, match=f"process {pid} tunes this instance; wait until it has ended"):
        store.check_free()
    settings["process"]["boot"] = "an earlier one"
    path.write_text(json.dumps(settings))
    store.check_free()


def test_two_directories_are_two_tunes(tmp_path):
    names = {Store(str(tmp_path / top), host, "chat").id for top in "ab" for host in ("x", "y")}
    assert len(names) == 4


def test_damaged_and_missing_files(store, tmp_path):
    (store.directory / "failures.json").write_text("{")
    with pytest.raises(TuneError, match=r"failures\.json cannot be read: .*; remove it to begin again"):
        store.taken(["current"], step_of(store.settings()), 3)
    with pytest.raises(TuneError, match=r"plans/other\.json is not there"):
        store.plan("other")
    with pytest.raises(TuneError, match=r"tune\.json is not there"):
        Store(str(tmp_path), "x", "chat").settings()


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(TuneError, match=r"cannot be written: .*What was measured before is kept"):
        Store(str(tmp_path / "results"), "gpu", "chat").begin({}, GOAL, RULES, CHAT, Amount())
