# SPDX-License-Identifier: GPL-3.0-or-later
"""The bound of requests at an engine: what it does after one observation, and with a thousand engines for an hour."""

from __future__ import annotations

import random

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.places import KV_CACHE, Load, Places, load_of
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.verdict import Watched
from ansible_collections.baremetal.inference.plugins.module_utils.instance.metrics import RUNNING, WAITING

# Seconds between two observations.
INTERVAL = 2


@pytest.mark.parametrize(
    ("share", "most", "load", "expected"),
    [
        # It is in use and nothing waits in the engine: one gateway whose peer is idle gets all.
        (32, 64, Load(32, 0, 0.3, 32), 34),
        (64, 64, Load(64, 0, 0.3, 64), 64),
        (4, 8, Load(4, 0, 0.3, 4), 5),
        # It is not in use.
        (32, 64, Load(20, 0, 0.3, 20), 32),
        # Long contexts.
        (32, 64, Load(32, 0, 0.95, 32), 32),
        # A few at hand do not matter.
        (32, 64, Load(32, 2, 0.3, 34), 32),
        # More than that: what runs stays, and no more comes.
        (32, 64, Load(20, 12, 0.99, 32), 20),
        (32, 64, Load(30, 34, 0.99, 32), 15),
        # Half of what waits is another gateway's.
        (32, 64, Load(40, 20, 0.9, 30), 20),
        (8, 8, Load(0, 8, 1.0, 8), 1),
        (8, 8, Load(0, 8, 1.0, 0), 1),
        # Four requests with 256 sequences each say little of how many others fit.
        (256, 256, Load(256, 768, 0.5, 4), 32),
        (256, 256, Load(256, 24, 0.5, 4), 32),
        # The KV cache is full, so it is long contexts and not sequences of few requests.
        (256, 256, Load(8, 24, 0.97, 32), 8),
        # The other gateway has the rest.
        (8, 64, Load(60, 1, 0.5, 8), 8),
        (8, 16, Load(16, 0, 0.5, 8), 8),
        (8, 16, Load(15, 0, 0.5, 8), 9),
        # Others send as well, past the gateways.
        (8, 16, Load(60, 1, 0.5, 8), 8),
    ],
)
def test_what_is_seen_twice(share, most, load, expected):
    places = Places(share, most, waited=load.waiting)
    assert places.update(load) == expected == places.bound


def test_a_gateway_gives_back_what_the_other_one_had_left_to_it():
    places = Places(8, 16, bound=12)
    assert [places.update(Load(16, 1, 0.5, 12)) for _n in range(6)] == [11, 10, 9, 8, 8, 8]
    # It may have been cut to less than its share.
    assert Places(8, 16, bound=6).update(Load(16, 0, 0.5, 6)) == 7


def test_what_is_kept_for_the_highest_class_is_free_in_all_gateways():
    places = Places(8, 16, 1)
    assert (places.limit(100.0), places.update(Load(14, 0, 0.5, 7)), places.update(Load(13, 0, 0.5, 7))) == (7, 8, 9)
    # The highest class has what was kept.
    assert [places.update(Load(16, 0, 0.5, 9)) for _n in range(2)] == [8, 8]
    # Of a smaller bound less is kept, and the limit is never zero, which HAProxy takes for none.
    assert [Places(256, 256, 4, bound=bound).limit(100.0) for bound in (256, 128, 32, 1)] == [252, 126, 32, 1]


def test_what_waits_once_cuts_nothing():
    places = Places(256, 256)
    assert [places.update(Load(156, waiting, 0.1, 256)) for waiting in (100, 0, 100, 100)] == [256, 256, 256, 156]


def test_a_bound_falls_to_what_runs_and_not_below_while_the_rest_still_waits():
    places = Places(16, 16, waited=6)
    assert [places.update(Load(10, 6, 1.0, 16)) for _n in range(5)] == [10] * 5


def test_after_a_reload_the_limit_rises_from_one_and_the_bound_grows_fast_for_a_while():
    places = Places(32, 64)
    assert places.limit(100.0) == 32
    places.reloaded_at = 100.0
    assert [places.limit(100.0 + seconds) for seconds in (0, 1.5, 3, 4.5, 6, 600)] == [1, 8, 16, 24, 32, 32]
    # What the replaced worker still has there makes the bound smaller; it comes back once that is done.
    assert [places.update(Load(32, 16, 0.3, 16), at) for at in (102.0, 104.0)] == [32, 10]
    assert [places.update(Load(20, 0, 0.3, places.bound), 106.0) for _n in range(3)] == [15, 22, 33]
    assert Places(32, 64).update(Load(10, 0, 0.3, 32), 106.0) == 34


def test_what_an_engine_does_not_tell_counts_as_nothing():
    assert load_of({}, 3) == Load(0, 0, 0.0, 3)
    assert Places(4, 8).update(load_of({}, 3)) == 4


@pytest.mark.parametrize("number", [-4.0, 1e308, float("inf"), -1e308])
def test_whatever_an_engine_tells_the_bound_is_a_number_within_its_limits(number):
    for figures in ({RUNNING: number}, {WAITING: number}, {KV_CACHE: number}, {RUNNING: number, WAITING: 4.0}):
        places = Places(4, 8)
        assert 1 <= places.update(load_of(figures, 4)) <= 8
        load = load_of(figures, 4)
        assert load.running >= 0 and load.waiting >= 0 and 0 <= load.cache <= 1


def test_haproxy_gets_the_bound_in_front_of_the_reason():
    watched = Watched(60, 60, verdict="up", places=Places(4, 8))
    assert watched.line == "up maxconn:4"
    watched.sick = "reset_chip xid 95"
    assert watched.line == "up maxconn:4 #sick, and the service needs it: reset_chip xid 95"
    assert Watched(60, 60, places=Places(4, 8)).line == "maxconn:4"
    assert Watched(60, 60, verdict="up").line == "up"


class Engine:
    """An engine that can run so many requests, with two gateways that always have more; a request takes 20 s."""

    def __init__(self, number, limit):
        self.limit, self.places = limit, [Places(32, 64), Places(32, 64)]
        # Requests of each gateway that are there, and those of them that run.
        self.there = [0, 0]
        self.random = random.Random(number)
        self.changes = []

    def step(self):
        total = sum(self.there)
        running = min(total, self.limit)
        for _n in range(int(running * INTERVAL / 20 + self.random.random())):
            # One of those that are there, of either gateway.
            self.there[self.random.random() * total >= self.there[0]] -= 1
            total -= 1
        self.there = [max(each, places.bound) for each, places in zip(self.there, self.places)]
        running = min(sum(self.there), self.limit)
        waiting = sum(self.there) - running
        before = [places.bound for places in self.places]
        after = [places.update(Load(running, waiting, running / self.limit * 0.8, own))
                 for places, own in zip(self.places, self.there)]  # fmt: skip
        self.changes.append(sum(abs(new - old) for new, old in zip(after, before)))
        return running, waiting


def read_prompts(first_look, seconds=120, places=256, budget=8192):
    """Return the tokens a second of an engine that reads some tokens of prompts a step, for answers of one length."""
    bound, now, looked, written = Places(places, places), 0.0, first_look, 0
    # Tokens of each request: those of its prompt that are not read yet, and those of its answer.
    running, waiting = [], []
    while now < seconds:
        waiting += [[512, 256] for _n in range(bound.bound - len(running) - len(waiting))]
        left = read = budget
        for each in [*running, *waiting]:
            part = min(left, each[0])
            each[0], left = each[0] - part, left - part
        running += [each for each in waiting if each[0] < 512]
        waiting = [each for each in waiting if each[0] == 512]
        writing = [each for each in running if not each[0]]
        for each in writing:
            each[1] -= 1
        written += len(writing)
        now += 0.006 + 4e-5 * len(writing) + (read - left) / 90_000
        running = [each for each in running if each[1]]
        if now >= looked:
            looked += INTERVAL
            bound.update(Load(len(running), len(waiting), 0.05, len(running) + len(waiting)))
    return written / now


def test_answers_that_end_together_do_not_make_an_engine_emptier():
    """As two H200 did on 2026-11-30: bounds of 182 and 187 in place of 256, and 0.87 of the tokens."""
    found = [read_prompts(first_look) for first_look in (0.0, 0.4, 0.8, 1.2)]
    assert min(found) > 0.99 * max(found)
    assert max(found) == pytest.approx(11_600, rel=0.02)


@pytest.mark.slow
def test_a_thousand_engines_for_an_hour_are_full_and_calm():
    draw = random.Random(44)
    engines = [Engine(number, draw.randint(8, 64)) for number in range(1000)]
    ran = could = 0
    for second in range(0, 3600, INTERVAL):
        # After 20 minutes half of them get long contexts, and after 40 these are gone.
        for number, engine in enumerate(engines):
            if number % 2 and second in (1200, 2400):
                engine.limit = max(4, engine.limit // 2) if second == 1200 else engine.limit * 2
            running, waiting = engine.step()
            # What came before the bound fell is completed.
            if second % 1200 > 300:
                ran, could = ran + running, could + engine.limit
                assert waiting <= max(6, engine.limit // 4), (second, number, engine.limit, waiting)
    # They are full, the bounds rest, and both gateways have their part.
    assert ran / could > 0.97
    calm = [sum(engine.changes[-300:]) / 300 for engine in engines]
    assert sum(calm) / len(calm) < 0.5, sum(calm) / len(calm)
    shares = [engine.places[0].bound / sum(each.bound for each in engine.places) for engine in engines]
    assert abs(sum(shares) / len(shares) - 0.5) < 0.02
