# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of the instances that share chips is awake next."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import Unit
from ansible_collections.baremetal.inference.plugins.module_utils.residents.turns import Action, Turns, View

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
