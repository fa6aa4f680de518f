# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout at a time on a cluster, and one tune on a host."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.wheelhouse import run_module


@pytest.fixture(params=["rollout", "tune"])
def lock(request, tmp_path):
    def ask(name, state="taken", **options):
        given = {"id": name, "state": state, "cluster": "fra1", "holder": f"{name} on deploy-1", **options}
        return run_module("work_lock", kind=request.param, directory=str(tmp_path / "locks"), **given)

    ask.kind = request.param
    return ask


def test_the_second_is_refused_and_told_who_has_it(lock):
    assert lock("one")["changed"]
    for state in ("taken", "status"):
        refused = lock("two", state)
        assert refused["failed"]
        assert f"fra1.json: the {lock.kind} one of one on deploy-1 has been working here since 20" in refused["msg"]
        assert refused["msg"].endswith(f"-e {lock.kind}_take_over=one")
        assert ("run site.yml on this host" in refused["msg"]) == (lock.kind == "tune")


def test_it_is_free_again_after_its_end_and_only_then(lock):
    lock("one")
    assert not lock("two", "free")["changed"]
    assert lock("two")["failed"]
    assert lock("one", "free")["changed"]
    assert lock("two", "status")["holder"] == {} and lock("two")["changed"]


def test_an_interrupted_one_takes_it_again_and_finds_the_states_that_it_goes_back_to(lock):
    lock("one", states={"chat": "d"})
    again = lock("one", states={"chat": "of a variant"})
    assert not again["changed"] and again["holder"]["states"] == {"chat": "d"}
    assert lock("one", "status")["holder"]["states"] == {"chat": "d"}


def test_that_of_a_dead_one_is_taken_over(lock):
    lock("one")
    assert lock("two", stale=["other", ""])["failed"]
    taken = lock("two", stale=["one"])
    assert (taken["changed"], taken["holder"]["id"]) == (True, "one")
    assert lock("one")["failed"]


def test_clusters_do_not_keep_each_other(lock):
    assert lock("one")["changed"]
    assert lock("two", cluster="ber1")["changed"]
    assert lock("three", cluster="")["changed"]


def test_check_mode_refuses_as_well_and_takes_and_releases_nothing(lock, tmp_path):
    assert lock("one", _ansible_check_mode=True)["changed"]
    assert not (tmp_path / "locks").exists()
    lock("one")
    assert lock("two", _ansible_check_mode=True)["failed"]
    assert lock("one", "free", _ansible_check_mode=True)["changed"]
    assert lock("two")["failed"]


def test_of_many_at_once_one_gets_it(lock):
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lock, [f"n{number}" for number in range(6)]))
    assert sum(bool(answer.get("changed")) for answer in answers) == 1
    assert sum(bool(answer.get("failed")) for answer in answers) == 5


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"since": "x"})])
def test_a_damaged_lock_counts_as_taken(lock, tmp_path, text):
    lock("one")
    (tmp_path / "locks/fra1.json").write_text(text)
    assert "unreadable of somebody" in lock("one")["msg"]
    assert lock("one", stale=["unreadable"])["changed"]


def test_one_of_release_0_9_0_is_read(lock, tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/fra1.json").write_text(json.dumps({"id": "one", "since": "2026-11-28T20:00:00Z"}))
    assert f"the {lock.kind} one has been working here since 2026" in lock("two")["msg"]
    assert lock("one", "free")["changed"]


def test_a_name_cannot_lead_out_of_the_directory(lock, tmp_path):
    lock("one", cluster="../../evil")
    assert json.loads((tmp_path / "locks" / ".._.._evil.json").read_text())["id"] == "one"


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    refused = run_module("work_lock", kind="tune", id="one", state="taken", directory=str(tmp_path / "file/locks"))
    assert refused["failed"] and "the lock of a tune is kept there" in refused["msg"]
