# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of replicas: one decision after another, and a thousand servers of 50 teams for an hour."""

from __future__ import annotations

import bisect
import math
import random
from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.scale import (
    AGAIN,
    ASLEEP,
    DOWN_AFTER,
    LOST,
    SERVING,
    SHOWS,
    STARTING,
    STOPPED,
    UP_AFTER,
    Action,
    Replica,
    Scale,
)
from ansible_collections.baremetal.inference.plugins.module_utils.instance.scale_door import SLEEP, START, STOP, WAKE

PLACES = 16
# Seconds between two observations, and of a start.
INTERVAL, START_TAKES = 2, 60
# Of a request.
SECONDS = 4
# Seconds in which the places of a newcomer rise: gateway_slowstart.
SLOW = 10


def replicas(*states: str, running: int = 0) -> list[Replica]:
    return [
        Replica(f"gpu-{letter}--chat", state, PLACES, running if state == SERVING else 0, resident=state == ASLEEP)
        for letter, state in zip("abcdefgh", states)
    ]


def verdict(action: Action) -> tuple[str, str]:
    return action.verb, action.name.partition("--")[0]


def settled(scale: Scale, found: list[Replica], waiting: int = 0) -> Action:
    """Return the decision when the same was seen for longer than any time that the rules have."""
    action = scale.decide(found, waiting, 0)
    for now in range(2, int(DOWN_AFTER) + 3, 2):
        action = scale.decide(found, waiting, now)
        if action.verb:
            return action
    return action


@pytest.mark.parametrize(
    ("states", "waiting", "expected"),
    [
        # Too few wait to matter.
        ((SERVING, STOPPED), 1, ("", "")),
        ((SERVING, STOPPED), 2, (START, "gpu-b")),
        # One that sleeps serves sooner.
        ((SERVING, STOPPED, ASLEEP), 9, (WAKE, "gpu-c")),
        # One that is about to serve is awaited.
        ((SERVING, STARTING, STOPPED), 9, ("", "")),
        # As many as would run what waits.
        ((SERVING, SERVING, STARTING, STOPPED), 90, (START, "gpu-d")),
        # One that should serve and does not is not touched, and has no part in max.
        ((SERVING, LOST, STOPPED), 9, (START, "gpu-c")),
        ((SERVING, SERVING, SERVING, SERVING, STOPPED), 99, ("", "")),
    ],
)
def test_replicas_come_while_requests_wait(states: tuple[str, ...], waiting: int, expected: tuple[str, str]) -> None:
    scale = Scale(1, 4)
    found = replicas(*states, running=PLACES)
    assert verdict(scale.decide(found, waiting, 0)) == ("", "")
    assert verdict(scale.decide(found, waiting, UP_AFTER)) == expected


def test_one_that_sleeps_wakes_sooner_than_a_start() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, ASLEEP, running=PLACES)
    assert [scale.decide(found, 9, now).verb for now in (0, 1)] == ["", WAKE]


def test_a_short_wait_starts_nothing() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, STOPPED, running=PLACES)
    for now in range(100):
        assert not scale.decide(found, 9 if now % 3 else 0, now).verb


def test_one_that_was_asked_and_does_not_start_leaves_its_turn_to_the_next() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, STOPPED, STOPPED, running=PLACES)
    orders = [(now, scale.decide(found, 9, now)) for now in range(int(AGAIN) + 60)]
    assert [(now, action.name) for now, action in orders if action.verb] == [
        (3, "gpu-b--chat"),
        (3 + SHOWS, "gpu-c--chat"),
        (3 + AGAIN, "gpu-b--chat"),
        (3 + SHOWS + AGAIN, "gpu-c--chat"),
    ]


def test_min_is_kept_without_any_request() -> None:
    assert verdict(settled(Scale(2, 4), replicas(SERVING, STOPPED))) == (START, "gpu-b")
    assert verdict(settled(Scale(2, 4), replicas(SERVING, LOST, STOPPED))) == (START, "gpu-c")
    # A check that fails once or twice is no reason.
    scale = Scale(2, 4)
    for now in range(0, 600, 2):
        second = LOST if now % 8 < 4 else SERVING
        assert not scale.decide(replicas(SERVING, second, STOPPED), 0, now).verb
    assert not settled(Scale(2, 4), replicas(SERVING, SERVING)).verb


def test_an_idle_replica_leaves_after_ten_minutes_and_the_next_one_ten_minutes_later() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, SERVING, SERVING)
    left = []
    for now in range(0, 3600, INTERVAL):
        action = scale.decide(found, 0, now)
        if action.verb:
            left.append((now, *verdict(action)))
            found = [replace(each, state=STOPPED) if each.name == action.name else each for each in found]
    assert left == [(600, STOP, "gpu-c"), (1200, STOP, "gpu-b")]


def test_more_than_max_leave_one_by_one_whatever_the_load() -> None:
    scale, found = Scale(1, 2), replicas(SERVING, SERVING, SERVING, SERVING, running=PLACES)
    left = []
    for now in range(0, 3600, INTERVAL):
        action = scale.decide(found, 90, now)
        if action.verb:
            left.append((now, action.verb, action.why))
            found = [replace(each, state=STOPPED, running=0) if each.name == action.name else each for each in found]
    assert left == [
        (600, STOP, "4 replicas serve, and max is 2"), (1200, STOP, "3 replicas serve, and max is 2")
    ]  # fmt: skip


def test_none_leaves_while_the_host_of_one_is_silent() -> None:
    found = [replace(each, fixed=at == 2, silent=at == 2) for at, each in enumerate(replicas(*[SERVING] * 3))]
    assert settled(Scale(1, 4), found).why == "the host of gpu-c--chat does not answer, and none leaves meanwhile"
    # But one comes.
    found[1] = replace(found[1], state=STOPPED)
    assert verdict(settled(Scale(1, 4), found, waiting=9)) == (START, "gpu-b")


def test_what_a_rollout_has_returned_to_service_stays_for_ten_minutes() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, SERVING, SERVING)
    held = [replace(each, held=each.name.startswith("gpu-c")) for each in found]
    for now in range(0, 3000, INTERVAL):
        assert not scale.decide(held, 0, now).verb
    left = [now for now in range(3000, 3700, INTERVAL) if scale.decide(found, 0, now).verb]
    assert left == [3000 + DOWN_AFTER]


def test_after_a_rollout_none_leaves_for_ten_minutes_though_its_host_does_not_serve_yet() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, SERVING, LOST)
    for now in range(0, 3000, INTERVAL):
        assert not scale.decide([*found[:2], replace(found[2], held=True)], 0, now).verb
    left = [now for now in range(3000, 3700, INTERVAL) if scale.decide(found, 0, now).verb]
    assert left == [2998 + DOWN_AFTER]


def test_what_site_yml_has_started_stays_for_ten_minutes() -> None:
    scale = Scale(1, 4)
    assert not settled(scale, replicas(SERVING, STOPPED, STOPPED)).verb
    found = replicas(SERVING, SERVING, SERVING)
    left = [now for now in range(5000, 5700, INTERVAL) if scale.decide(found, 0, now).verb]
    assert left == [5000 + DOWN_AFTER]


def test_one_that_shares_its_chips_sleeps_instead() -> None:
    found = [replace(each, resident=True) for each in replicas(SERVING, SERVING)]
    assert verdict(settled(Scale(1, 4), found)) == (SLEEP, "gpu-b")


def test_the_one_with_the_fewest_requests_leaves() -> None:
    found = [replace(each, running=each.name != "gpu-b--chat") for each in replicas(SERVING, SERVING, SERVING)]
    assert verdict(settled(Scale(1, 4), found)) == (STOP, "gpu-b")


@pytest.mark.parametrize("running", [11, 12])
def test_none_leaves_while_the_others_would_be_more_than_seven_tenths_full(running: int) -> None:
    found = [
        replace(each, running=running if each.name.startswith("gpu-a") else 0) for each in replicas(*[SERVING] * 2)
    ]
    assert bool(settled(Scale(1, 2), found).verb) == (running <= 0.7 * PLACES)


def test_what_replicas_ran_while_requests_waited_counts_more_than_the_plan() -> None:
    # Long contexts: four requests fill an engine.
    scale, found = Scale(1, 2), replicas(SERVING, SERVING, running=4)
    for now in range(int(UP_AFTER) + 1):
        scale.decide(found, 8, now)
    found = [replace(each, running=3 if each.name.startswith("gpu-a") else 0) for each in found]
    for now in range(int(UP_AFTER) + 1, 4 * int(DOWN_AFTER), INTERVAL):
        assert not scale.decide(found, 0, now).verb
    # They have run more since then, and nobody waited.
    scale.decide(replicas(SERVING, SERVING, running=5), 0, now + 1)
    assert [scale.decide(found, 0, now + 2 + seconds).verb for seconds in (0, DOWN_AFTER)] == ["", STOP]


@pytest.mark.parametrize("part", [0, 0.001, 0.01, 0.1])
def test_a_light_load_of_which_one_waits_now_and_then_keeps_no_replica(part: float) -> None:
    random.seed(1)
    scale, states, left = Scale(1, 4), [SERVING] * 4, []
    for now in range(3 * 3600):
        running = random.randint(6, 14) // states.count(SERVING)
        found = [replace(each, places=256) for each in replicas(*states, running=running)]
        action = scale.decide(found, int(random.random() < part), now)
        if action.verb:
            left.append((now, action.verb))
            states["abcd".index(action.name[4])] = STOPPED
    assert left == [(600, STOP), (1200, STOP), (1800, STOP)]


def test_the_end_of_a_burst_says_nothing_of_what_a_replica_takes() -> None:
    scale = Scale(1, 4)
    # What waits is as old as the check of an engine, and what runs is not.
    for now, (running, waiting) in enumerate([*[(250, 300)] * 9, (9, 3), (3, 3)]):
        scale.decide(replicas(*[SERVING] * 4, running=running), waiting, now)
    assert scale.capacity == 250


def test_a_replica_comes_while_requests_wait_at_one_that_runs_little() -> None:
    scale, found = Scale(1, 4), replicas(SERVING, SERVING, STOPPED, running=30)
    # Long contexts fill it.
    found[1] = replace(found[1], running=5)
    assert [verdict(scale.decide(found, 10, now)) for now in (0, UP_AFTER)] == [("", ""), (START, "gpu-c")]


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("slow", [1, 2, 5, 10, 15])
def test_no_more_come_than_are_needed_while_a_newcomer_takes_its_part(least: int, slow: int) -> None:
    scale, load = Scale(least, 4), 28
    states, serves_at, woken = [SERVING] * least + [ASLEEP] * (4 - least), [-100] * 4, []
    for now in range(100):
        states = [SERVING if at == now else state for at, state in zip(serves_at, states)]
        left, found = load, replicas(*states)
        for at, state in enumerate(states):
            part = min(1.0, (now - serves_at[at]) / slow)
            running = min(left, int(PLACES * part)) if state == SERVING else 0
            found[at], left = replace(found[at], running=running), left - running
        action = scale.decide(found, left, now)
        if action.verb:
            woken.append(action.verb)
            serves_at["abcd".index(action.name[4])] = now + 3
    # Two of 16 places take them.
    assert woken == [WAKE] * (2 - least)


def test_what_somebody_holds_is_not_touched() -> None:
    held = [replace(each, held=each.name.startswith("gpu-b")) for each in replicas(SERVING, STOPPED, running=PLACES)]
    assert not settled(Scale(1, 4), held, waiting=9).verb
    held = [replace(each, held=each.name.startswith("gpu-c")) for each in replicas(SERVING, SERVING, SERVING)]
    # Nor does another one leave while a rollout has one.
    assert not settled(Scale(1, 4), held).verb
    # It does not count as one that serves.
    held = [replace(each, held=each.name.startswith("gpu-a")) for each in replicas(SERVING, STOPPED)]
    assert verdict(settled(Scale(1, 4), held)) == (START, "gpu-b")


def test_one_that_always_serves_neither_leaves_nor_starts() -> None:
    fixed = [replace(each, fixed=each.name.startswith("gpu-b")) for each in replicas(SERVING, SERVING, SERVING)]
    assert verdict(settled(Scale(1, 4), fixed)) == (STOP, "gpu-c")
    fixed = [replace(each, fixed=each.name.startswith("gpu-c")) for each in replicas(SERVING, SERVING, SERVING)]
    assert verdict(settled(Scale(1, 4), fixed)) == (STOP, "gpu-b")
    assert not settled(Scale(1, 4), [replace(each, fixed=True) for each in fixed]).verb
    fixed = [replace(each, fixed=True) for each in replicas(SERVING, SERVING, STOPPED, running=PLACES)]
    assert not settled(Scale(1, 4), fixed).verb
    assert not settled(Scale(1, 4), fixed, waiting=90).verb


def test_to_zero_and_back() -> None:
    scale, found = Scale(0, 1), replicas(SERVING)
    assert verdict(settled(scale, found)) == (STOP, "gpu-a")
    found = replicas(STOPPED)
    assert not scale.decide(found, 0, 2000).verb
    # The first request is enough, and it is not made to wait for a second look.
    assert verdict(scale.decide(found, 1, 2002)) == (START, "gpu-a")
    # A request a minute keeps it.
    scale, found = Scale(0, 1), replicas(SERVING)
    assert not any(scale.decide([replace(found[0], running=now % 60 < 2)], 0, now).verb for now in range(0, 3600, 2))


@dataclass
class Service:
    """A service whose replicas take PLACES requests of SECONDS each, for as long as requests come."""

    scale: Scale
    states: list[str]
    until: list[float]
    work: float = 0.0
    changes: list[int] = field(default_factory=list)
    # How many requests had come, and how many of them had begun, at each observation.
    came: list[float] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    used: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(44))

    def step(self, offered: float, now: int, seconds: int = INTERVAL) -> None:
        """Let ``offered`` requests a second come for ``seconds``."""
        for at, state in enumerate(self.states):
            if state == STARTING and now >= self.until[at]:
                self.states[at] = SERVING
        serving = self.states.count(SERVING)
        rooms = [
            PLACES * min(1.0, (now - until) / SLOW) if state == SERVING else 0.0
            for state, until in zip(self.states, self.until)
        ]
        room = sum(rooms)
        running = min(room, self.work)
        self.work += (offered - running / SECONDS) * seconds
        waiting = max(0.0, self.work - room)
        self.came.append((self.came[-1] if self.came else 0.0) + offered * seconds)
        self.began.append(self.came[-1] - waiting)
        self.used += serving + self.states.count(STARTING)
        found = [
            Replica(f"gpu-{at:02}--chat", state, PLACES, int(running * own / max(room, 1)))
            for at, (state, own) in enumerate(zip(self.states, rooms))
        ]
        # One that waits for a moment is no sign of too few.
        action = self.scale.decide(found, int(waiting) or int(self.chance.random() < 0.01), now)
        if action.verb:
            at = next(at for at, each in enumerate(found) if each.name == action.name)
            self.states[at], self.until[at] = (STARTING, now + START_TAKES) if action.verb == START else (STOPPED, 0)
            self.changes.append(now)

    def longest_wait(self, since: int = 0) -> int:
        """Return for how many observations a request waited, of those that came from the one numbered ``since`` on."""
        waits = [bisect.bisect_left(self.began, came - 0.01) - at for at, came in enumerate(self.came)]
        return max(waits[since:])


def service(count: int, least: int = 1) -> Service:
    return Service(Scale(least, count), [SERVING] * least + [STOPPED] * (count - least), [-math.inf] * count)


@pytest.mark.parametrize("period", [60, 300, 700, 1200, 3000])
def test_a_saw_tooth_changes_the_number_once_in_five_minutes_at_most(period: int) -> None:
    of, hours = service(8), 3
    for now in range(0, hours * 3600, INTERVAL):
        # From nothing to what seven replicas take.
        of.step(7 * PLACES / SECONDS * (now % period) / period, now)
    assert len(of.changes) <= hours * 3600 / 300 + 8
    # Of a short one nobody notices that it falls.
    assert period > 300 or not [now for now in of.changes if now > 1800]


def test_an_engine_that_lies_about_its_queue_changes_the_number_once_in_five_minutes_at_most() -> None:
    scale, found, changes, hours = Scale(1, 2), list(replicas(SERVING, STOPPED, running=2)), [], 3
    for now in range(0, hours * 3600, INTERVAL):
        action = scale.decide(found, 2 if now % 700 < 60 else 0, now)
        if action.verb:
            changes.append(now)
            found[1] = replace(found[1], state=SERVING if action.verb == START else STOPPED, running=0)
    assert len(changes) <= hours * 3600 / 300 + 1


def test_a_constant_load_changes_nothing_after_its_start() -> None:
    for part in (0.05, 0.3, 0.5, 0.63, 0.71, 0.9):
        of = service(8)
        for now in range(0, 2 * 3600, INTERVAL):
            of.step(part * 8 * PLACES / SECONDS, now)
        assert not [now for now in of.changes if now > 3600 - 600]
        assert of.longest_wait(1800) == 0


@pytest.mark.slow
def test_an_hour_of_fifty_teams_on_a_thousand_servers() -> None:
    random.seed(44)
    fleet = [service(10) for _n in range(100)]
    # Each team uses ten services: by day and night, in bursts, or all the time.
    teams = [(random.sample(range(100), 10), random.random() * 3600, random.choice((1, 2, 3))) for _n in range(50)]
    interval = 6
    for now in range(0, 3600, interval):
        offered = [0.0] * 100
        for services, phase, kind in teams:
            wave = (1 + math.sin((now + phase) / 573), 2.0 * ((now + phase) % 900 < 300), 1.0)[kind - 1]
            for each in services:
                offered[each] += 0.7 * PLACES / SECONDS * wave
        for each, of in zip(offered, fleet):
            of.step(min(each, 9 * PLACES / SECONDS), now, interval)
    changes = [len(of.changes) for of in fleet]
    # From one to ten replicas; then only what left comes back, and one leaves in ten minutes at most.
    assert max(changes) <= 9 + 2 * 3600 / DOWN_AFTER
    assert max(sum(now >= 1800 for now in of.changes) for of in fleet) <= 1800 / 300
    # Nobody starves. A client that comes while nearly all replicas are stopped waits for their start.
    assert max(of.longest_wait() for of in fleet) * interval <= 2 * START_TAKES
    assert max(of.longest_wait(300) for of in fleet) <= 3
    # Against ten replicas of each all the time.
    assert sum(of.used for of in fleet) / (1000 * 3600 / interval) < 0.95
