# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how many requests a gateway gives to an engine at once, from what the engine says of its own queue.

It starts with its share of what the plan says. While the engine has fewer than it takes and the bound is in use, it
grows; what it has beyond its share it gives back when the engine has more. When more waits there than an engine needs
at hand, twice in a row, the bound becomes what the engine runs of this gateway, and at least an eighth of its share:
nothing that runs is cut. In between it stays, so a constant load changes nothing. Once is not enough: answers of one
length end together, and what takes their places waits until its prompts are read.

After a reload the replaced worker of HAProxy keeps half of its bound for what waits there (gateway-admission.lua), and
that of the new one rises from nothing: if it filled the engine at once, a higher class that comes next would wait.
"""

import math
from dataclasses import dataclass
from typing import Mapping

from ..instance.metrics import KV_CACHE, RUNNING, WAITING

FIGURES = (RUNNING, WAITING, KV_CACHE)
# From this share of the KV cache on the bound does not grow: long contexts fill it with few requests.
FULL = 0.9
# A sixteenth of what runs may wait in the engine, and the bound grows by as much.
PART = 16
# The bound stays at an eighth of the share: an engine counts sequences, and one request may have hundreds of them
# (``n``, a list of prompts), so a few such requests say little of how many others fit. A full KV cache says it.
LEAST_PART = 8
# Seconds after a reload in which the bound rises, and those in which it grows by a half.
RISES, FAST, FAST_PART = 6.0, 40.0, 2
# No engine runs as many; what it reports may be anything.
MOST = 10**6


@dataclass(frozen=True)
class Load:
    """What an engine runs and has waiting, of all gateways; its KV cache's share in use; this gateway's ``own``."""

    running: int
    waiting: int
    cache: float
    own: int


@dataclass
class Places:
    """The bound of a server: ``share`` is this gateway's by the plan, ``most`` what the engine takes of all of them.

    Of the share, ``kept`` are free until the highest class needs them (gateway-admission.lua).
    """

    share: int
    most: int
    kept: int = 0
    bound: int = 0
    # What waited in the engine at the observation before.
    waited: int = 0
    # When HAProxy got a new worker.
    reloaded_at: float = -math.inf

    def __post_init__(self) -> None:
        self.bound = self.bound or self.share

    @property
    def full(self) -> int:
        """How many the engine has when it is full; each gateway keeps as many free."""
        return self.most - self.kept * (self.most // self.share)

    @property
    def usual(self) -> int:
        """How many of the bound any class may use."""
        return self.bound - min(self.kept, self.kept * self.bound // self.share)

    def limit(self, now: float) -> int:
        """Return how many requests HAProxy may send at once."""
        return max(1, int(min(self.usual, self.share * (now - self.reloaded_at) / RISES)))

    def update(self, load: Load, now: float = math.inf) -> int:
        """Return the bound after an observation."""
        waiting, self.waited = min(load.waiting, self.waited), load.waiting
        total, there = load.running + waiting, load.running + load.waiting
        if waiting > max(1, load.running // PART):
            own_waiting = math.ceil(waiting * load.own / total)
            least = 1 if load.cache >= FULL else max(1, self.share // LEAST_PART)
            self.bound = min(self.bound, max(least, load.own - own_waiting))
        elif there > self.full and self.bound > self.share:
            self.bound -= 1
        elif load.own >= self.usual and load.cache < FULL:
            self.bound += self._step(load, there, now)
        return self.bound

    def _step(self, load: Load, there: int, now: float) -> int:
        """Return by how much a bound that is in use grows."""
        free = self.full - there
        if load.waiting or free <= 0:
            # Others have what it lacks: only a gateway with less than its share of what is there grows, one by one.
            return int(self.bound < min(there, self.most) * self.share // self.most)
        part = FAST_PART if now - self.reloaded_at < FAST else PART
        return min(free, self.most - self.bound, max(1, self.bound // part))


def load_of(metrics: Mapping[str, float], own: int) -> Load:
    """Return the load from an engine's metrics and the number of this gateway's requests there."""
    running, waiting = (int(min(max(0.0, metrics.get(name, 0.0)), MOST)) for name in (RUNNING, WAITING))
    return Load(running, waiting, min(max(0.0, metrics.get(KV_CACHE, 0.0)), 1.0), own)
