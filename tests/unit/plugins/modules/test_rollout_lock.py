# SPDX-License-Identifier: GPL-3.0-or-later
"""One rollout at a time on a cluster."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.wheelhouse import run_module


@pytest.fixture
def lock(tmp_path):
    def ask(name, state="taken", cluster="fra1", **options):
        given = {"cluster": cluster, "id": name, "state": state, "holder": f"{name} on deploy-1", **options}
        return run_module("rollout_lock", directory=str(tmp_path / "locks"), **given)

    return ask


def test_the_second_is_refused_and_told_who_has_it(lock):
    assert lock("one")["changed"]
    refused = lock("two")
    assert refused["failed"]
    assert "cluster fra1: one on deploy-1 has been rolling out here since 20" in refused["msg"]
    assert "-e rollout_take_over=one" in refused["msg"]


def test_it_is_free_again_after_its_end_and_only_then(lock):
    lock("one")
    assert not lock("two", "free")["changed"]
    assert lock("two")["failed"]
    assert lock("one", "free")["changed"]
    assert lock("two")["changed"]


def test_taking_it_twice_changes_nothing(lock):
    lock("one")
    assert not lock("one")["changed"]


def test_that_of_a_dead_rollout_is_taken_over(lock):
    lock("one")
    taken = lock("two", stale=["one"])
    assert (taken["changed"], taken["holder"]["id"]) == (True, "one")
    assert lock("one")["failed"]


def test_clusters_do_not_keep_each_other(lock):
    assert lock("one")["changed"]
    assert lock("two", cluster="ber1")["changed"]
    assert lock("three", cluster="")["changed"]


def test_check_mode_refuses_as_well_and_takes_nothing(lock, tmp_path):
    assert lock("one", _ansible_check_mode=True)["changed"]
    assert not (tmp_path / "locks").exists()
    lock("one")
    assert lock("two", _ansible_check_mode=True)["failed"]


def test_of_many_at_once_one_gets_it(lock):
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lock, [f"n{number}" for number in range(6)]))
    assert sum(bool(answer.get("changed")) for answer in answers) == 1
    assert sum(bool(answer.get("failed")) for answer in answers) == 5


def test_a_file_that_somebody_has_written_by_hand_is_not_taken_over(lock, tmp_path):
    lock("one")
    (tmp_path / "locks" / "fra1.json").write_text("mine")
    assert "is not JSON" in lock("one")["msg"]


def test_a_name_cannot_lead_out_of_the_directory(lock, tmp_path):
    lock("one", cluster="../../evil")
    assert json.loads((tmp_path / "locks" / ".._.._evil.json").read_text())["id"] == "one"
