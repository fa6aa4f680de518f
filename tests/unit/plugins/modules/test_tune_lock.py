# SPDX-License-Identifier: GPL-3.0-or-later
"""One tune at a time on a host."""

from __future__ import annotations

import json

import pytest

from tests.fakes.wheelhouse import run_module


@pytest.fixture
def lock(tmp_path):
    def ask(name, state="taken", **options):
        return run_module("tune_lock", id=name, state=state, path=str(tmp_path / "tune.json"), **options)

    return ask


def test_the_second_is_refused_and_learns_who_has_it(lock):
    assert lock("one", states={"chat": "d"})["changed"]
    for state in ("taken", "status"):
        refused = lock("two", state)
        assert refused["failed"] and "the tune one has been working on this host since 20" in refused["msg"]
        assert "-e tune_take_over=one" in refused["msg"]


def test_an_interrupted_tune_finds_the_states_that_it_goes_back_to(lock):
    lock("one", states={"chat": "d"})
    again = lock("one", states={"chat": "of a variant"})
    assert not again["changed"] and again["holder"]["states"] == {"chat": "d"}
    assert lock("one", "status")["holder"]["states"] == {"chat": "d"}


def test_only_its_tune_releases_it(lock):
    lock("one")
    assert not lock("two", "free")["changed"]
    assert lock("one", "free")["changed"]
    assert lock("two", "status")["holder"] == {} and lock("two")["changed"]


def test_a_dead_tune_can_be_replaced(lock):
    lock("one")
    assert lock("two", take_over="other")["failed"]
    assert lock("two", take_over="one")["changed"]
    assert lock("two", "status")["holder"]["id"] == "two"


def test_check_mode_takes_and_releases_nothing(lock, tmp_path):
    assert lock("one", _ansible_check_mode=True)["changed"] and not (tmp_path / "tune.json").exists()
    lock("one")
    assert lock("one", "free", _ansible_check_mode=True)["changed"] and (tmp_path / "tune.json").exists()


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"since": "x"})])
def test_a_damaged_lock_counts_as_taken(lock, tmp_path, text):
    (tmp_path / "tune.json").write_text(text)
    assert "the tune unreadable" in lock("one")["msg"]
    assert lock("one", take_over="unreadable")["changed"]


def test_a_host_without_the_directory(tmp_path):
    found = run_module("tune_lock", id="one", state="taken", path=str(tmp_path / "none/tune.json"))
    assert found["failed"] and "the lock of a tune is kept there" in found["msg"]
