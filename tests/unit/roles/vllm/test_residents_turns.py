# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of the instances that share chips is awake next, and the token for their endpoints."""

from __future__ import annotations

import fcntl
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "roles/vllm/files/vllm-residents.py"
SPEC = importlib.util.spec_from_file_location("vllm_residents_program", SCRIPT)
residents = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = residents
SPEC.loader.exec_module(residents)
Action, Turns, Unit, View = residents.Action, residents.Turns, residents.Unit, residents.View

UP, DOWN = Unit("active", "running", "1"), Unit("inactive", "dead", "")
STARTS, BEFORE = Unit("activating", "start", "2"), Unit("activating", "start-pre", "2")
DIED, STOPS = Unit("activating", "auto-restart", "2"), Unit("deactivating", "stop", "1")
NOW = 100.0


def awake(name="a", **more):
    return View(name, UP, asleep=False, **more)


def sleeping(name="b", **more):
    return View(name, UP, asleep=True, closed=True, **more)


def decide(*views, queue=(), starting="", began=0.0, resting=None):
    return Turns(5.0, list(queue), starting, began, dict(resting or {})).decide(views, NOW)


ASKS = {"waiting": 1, "since": NOW - 1}
LONG = {"waiting": 1, "since": NOW - 6}


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        # Nobody asks, so nothing changes.
        ([awake(), sleeping()], None),
        ([sleeping("a"), sleeping()], None),
        # An idle one sleeps at once, one whose last request has just ended a moment later.
        ([awake(), sleeping(**ASKS)], Action("sleep", "a")),
        ([awake(ended=NOW - 0.1), sleeping(**ASKS)], None),
        # A busy one has the patience.
        ([awake(running=2), sleeping(**ASKS)], None),
        ([awake(running=2), sleeping(**LONG)], Action("sleep", "a")),
        # Its gate is closed already: the requests end, then it sleeps.
        ([awake(running=2, closed=True), sleeping(**ASKS)], Action("sleep", "a")),
        # Those who asked have gone.
        ([awake(running=2, closed=True), sleeping()], Action("open", "a")),
        # All sleep: the oldest request decides.
        ([sleeping("a", **ASKS), sleeping("b", **LONG)], Action("wake", "b")),
        ([View("a", DOWN), sleeping(**ASKS)], Action("wake", "b")),
        ([View("a", DIED, answers=False, asleep=None), sleeping(**ASKS)], Action("wake", "b")),
        # One that may have the chips does not answer.
        ([View("a", UP, answers=False, asleep=None), sleeping(**LONG)], None),
        # One that slept and does not answer has no chips.
        ([View("a", UP, answers=False, asleep=True), sleeping(**ASKS)], Action("wake", "b")),
        # It stops, and its memory is not free yet; one that stops asleep is woken for its requests.
        ([View("a", STOPS, answers=False, asleep=False), sleeping(**LONG)], None),
        ([View("a", STOPS, asleep=True, closed=True, **ASKS), sleeping()], Action("wake", "a")),
        # A state that must not be: it ends.
        ([awake("a", running=1), awake("b")], Action("sleep", "b")),
        ([View("a", UP, asleep=True), sleeping()], Action("sleep", "a")),
        # Nobody knows whether it sleeps.
        ([View("a", UP, asleep=None, closed=True), sleeping()], Action("open", "a")),
        ([View("a", UP, asleep=None, closed=True), sleeping(**LONG)], Action("sleep", "a")),
        # Nothing starts while one starts, and nobody is woken.
        ([View("a", STARTS, answers=False, asleep=None), sleeping(**LONG)], None),
        ([View("a", STARTS, answers=False, asleep=None), awake("b")], Action("sleep", "b")),
    ],
)
def test_what_is_done(views, expected):
    assert decide(*views) == expected


def test_who_has_just_woken_has_the_patience_too():
    assert decide(awake(running=2), sleeping(**LONG), began=NOW - 2) is None
    assert decide(awake(running=2), sleeping(**LONG), began=NOW - 5) == Action("sleep", "a")


def test_a_start_waits_until_the_others_sleep():
    starter = View("a", BEFORE, answers=False, asleep=None)
    assert decide(starter, awake("b", running=3), queue=["a"]) == Action("sleep", "b")
    assert decide(starter, sleeping("b", **LONG), queue=["a"]) == Action("start", "a")
    assert decide(starter, View("b", UP, answers=False, asleep=None), queue=["a"]) is None
    assert decide(starter, View("b", STARTS, answers=False, asleep=None), queue=["a"]) is None
    # Between the permission and the moment at which vLLM takes its memory.
    assert decide(starter, sleeping("b", **LONG), starting="a") is None
    assert decide(starter, sleeping("b", **LONG), View("c", BEFORE, asleep=None), starting="a", queue=["c"]) is None


def test_after_a_failure_nothing_is_asked_of_it_for_a_while():
    later, over = {"b": NOW + 1}, {"b": NOW - 1}
    assert decide(sleeping("a", **ASKS), sleeping(**LONG), resting=later) == Action("wake", "a")
    assert decide(awake(), sleeping(**LONG), resting=later) is None
    assert decide(awake(), sleeping(**LONG), resting=over) == Action("sleep", "a")
    # It would not sleep, so it serves on.
    assert decide(awake(closed=True), sleeping(**LONG), resting={"a": NOW + 1}) == Action("open", "a")
    unknown = View("a", UP, asleep=None, closed=True)
    assert decide(unknown, sleeping(**LONG), resting={"a": NOW + 1}) is None


def views_of(name):
    for unit, answers, asleep, closed, busy in itertools.product(
        (UP, DOWN, STARTS, BEFORE, STOPS, DIED), (True, False), (True, False, None), (True, False), (0, 1)
    ):
        yield View(name, unit, answers, asleep, closed, running=busy, waiting=busy, since=NOW - 9 * busy)


def test_in_no_state_two_get_the_chips():
    """All states of two instances, and of one that wants to start."""
    done = set()
    for one, two, queue in itertools.product(views_of("a"), views_of("b"), ([], ["a"])):
        action = decide(one, two, queue=queue)
        if action is None:
            continue
        done.add(action.verb)
        view, other = (one, two) if action.name == "a" else (two, one)
        if action.verb in ("wake", "start"):
            assert not other.has_chips
        if action.verb == "wake":
            assert view.asleep and view.answers and view.waiting and not queue
        if action.verb in ("sleep", "open"):
            assert view.answers and view.unit.runs
    assert done == {"wake", "start", "sleep", "open"}


def test_units_are_read_whole_or_not_at_all(tmp_path, monkeypatch):
    systemctl = tmp_path / "systemctl"
    text = "Id=vllm@a.service\nActiveState=active\nSubState=running\nInvocationID=1\n\n"
    systemctl.write_text(f"#!/bin/sh\nprintf '{text}'\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert residents.read_units(["a"]) == {"a": UP}
    with pytest.raises(KeyError):
        residents.read_units(["a", "b"])
    systemctl.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(OSError, match="systemd does not answer"):
        residents.read_units(["a"])


def test_the_instances_of_a_group_are_found_in_their_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(residents, "CONFIG", tmp_path)
    for name, text in {
        "a": 'RESIDENTS="x"',
        "b": "A=1\nRESIDENTS=x",
        "c": 'RESIDENTS="xy"',
        "d": "# RESIDENTS=x",
    }.items():
        (tmp_path / f"{name}.env").write_text(text + "\n")
    assert residents.read_names("x") == ["a", "b"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(residents, "RUN", tmp_path)
    monkeypatch.setattr(residents, "ABSENT", 0.05)
    (tmp_path / "chat").mkdir()
    return tmp_path / "chat/operator"


def test_a_token_is_written_once_and_read_by_the_group_alone(place):
    before = os.umask(0o027)
    try:
        token = residents.read_token("chat")
    finally:
        os.umask(before)
    assert len(token) == 64 and residents.read_token("chat") == token
    assert place.stat().st_mode & 0o777 == 0o640


def test_the_token_of_another_program_is_used(place):
    place.write_text("b" * 64 + "\n")
    assert residents.read_token("chat") == "b" * 64


def test_while_another_program_has_the_lock_no_token_is_written(place):
    directory = os.open(place.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another program calls the instance"):
            residents.read_token("chat")
        assert not place.exists()
        threading.Timer(0.07, lambda: place.write_text("c" * 64)).start()
        assert residents.read_token("chat") == "c" * 64
    finally:
        os.close(directory)


def test_a_link_is_not_followed(place, tmp_path):
    """The directory belongs to vLLM's user; this program is root."""
    target = tmp_path / "shadow"
    target.write_text("d" * 64)
    place.symlink_to(target)
    token = residents.read_token("chat")
    assert token != "d" * 64 and not place.is_symlink() and target.read_text() == "d" * 64


def test_a_pipe_does_not_block(place):
    """Nobody writes to it."""
    os.mkfifo(place)
    assert len(residents.read_token("chat")) == 64 and place.is_file()


def test_a_directory_leaves_no_file_open(place):
    place.mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="directory"):
        residents.read_token("chat")
    assert os.listdir("/proc/self/fd") == before


def test_a_start_gives_up_before_systemd_does(tmp_path):
    """Without the service nobody can say that the chips are free."""
    reset = tmp_path / "reset"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >{reset}\n')
    (tmp_path / "systemctl").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    began = time.monotonic()
    command = [sys.executable, str(SCRIPT), "acquire", "nothing-here", "chat", "1.5"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and 1 < time.monotonic() - began < 5
    assert "did not become free in 2 s" in done.stderr and "journalctl -u vllm-residents@nothing-here" in done.stderr
    # The limit of starts does not count it.
    assert reset.read_text() == "reset-failed vllm@chat.service\n"


@pytest.mark.parametrize("words", [[], ["serve"], ["acquire", "a", "b"], ["other", "a"]])
def test_other_words_get_the_usage(words):
    with pytest.raises(SystemExit) as ended:
        residents.main(words)
    assert "vllm-residents.py serve GROUP PATIENCE" in str(ended.value)
