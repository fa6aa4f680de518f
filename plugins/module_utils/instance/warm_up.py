# SPDX-License-Identifier: GPL-3.0-or-later
"""Which requests warm an instance up, and when it is warm.

vLLM compiles kernels at the first use of a batch size, and until then serves at about half its speed.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any, Iterator

from ..common.foreign_json import load_json

# MOST: requests at a time, unless max-num-seqs is less. STEP_TOKENS: tokens of all prompts in a step. LONGEST: tokens
# in one prompt. A step runs a few full batches of prompts, then batches with one token per request.
MOST, STEP_TOKENS, LONGEST = 512, 32768, 1024
OUTPUT = 8
# A step is warm when it takes as long as in the previous run, apart from noise.
STEADY = 0.8
# A step runs at most this many times.
REPEATS = 4
# A prompt alone makes a batch of its length. Triton's experts (vLLM's choice for MXFP4 on Hopper) compile kernels for
# each number of tokens in a batch, in steps of GRAIN, and others where that is no multiple of 16, 4 or 2 (ODD has one
# of each). Graphs cover only small batches. BATCH: vLLM's own limit of the tokens in a batch.
GRAIN, ODD, BATCH = 32, (0, 21, 12, 30), 8192
# A prompt is slow if it takes more than SLOW times what its length explains. PATIENCE prompts in a row that are not
# slow show that nothing is compiled any longer.
SLOW, PATIENCE = 2.0, 24
# A compiler takes at least so many seconds; a kernel from the disk less. While most of the last RECENT prompts compile
# something, as at the first start, the warm-up may take LONGER times as long.
COMPILED, RECENT, LONGER = 0.15, 8, 3


def _now() -> float:
    return time.monotonic()


@dataclass(frozen=True)
class Limits:
    """The limits of an instance's batches: 0 means that vLLM decides."""

    max_num_seqs: int = 0
    max_model_len: int = 0
    max_num_batched_tokens: int = 0


def steps(limits: Limits) -> Iterator[tuple[int, int]]:
    """Yield the number of requests at a time and the tokens of their prompts; each step has four times as many."""
    most = min(limits.max_num_seqs or MOST, MOST)
    longest = min(LONGEST, limits.max_model_len - OUTPUT - 1) if limits.max_model_len else LONGEST
    at_once = 1
    while True:
        yield at_once, max(1, min(longest, STEP_TOKENS // at_once))
        if at_once >= most:
            return
        # A step takes one to four seconds on an H200. If the number doubled, 20 s would end at 128.
        at_once = min(4 * at_once, most)


def lengths(limits: Limits) -> list[int]:
    """Return the lengths of prompts that are sent alone: first powers of two and what lies between, then all others.

    The others are in the order of their reversed bits, so that each beginning of the list is spread over all of it.
    """
    longest = limits.max_model_len - 2 if limits.max_model_len else BATCH
    classes = min(limits.max_num_batched_tokens or BATCH, longest, BATCH) // GRAIN
    bits = max(1, (classes - 1).bit_length())
    order = sorted(range(classes), key=lambda number: f"{number:0{bits}b}"[::-1])
    spread = [GRAIN * (number + 1) - ODD[(place + place // 4) % len(ODD)] for place, number in enumerate(order)]
    coarse = [size for power in range(4, 14) for size in (1 << power, 3 << power - 1)]
    return [size for size in coarse if size <= GRAIN * classes] + spread


@dataclass
class Progress:
    """What a warm-up has seen; times are in seconds, by the number of requests at a time or the length of a prompt."""

    seconds: float
    began: float = field(default_factory=_now)
    requests: int = 0
    times: dict[int, list[float]] = field(default_factory=dict)
    alone: dict[int, float] = field(default_factory=dict)
    # Lengths at which something was compiled.
    compiled: list[int] = field(default_factory=list)
    # What each size took at the end of an earlier warm-up with the same caches.
    known: dict[int, float] = field(default_factory=dict)
    _rate: float = float("inf")
    _in_a_row: int = 0

    @property
    def deadline(self) -> float:
        """When the time is up."""
        return self.began + self.seconds

    def fits(self, at_once: int) -> bool:
        """Return whether another run of a size ends before the time is up."""
        known = self.times.get(at_once, [])
        return time.monotonic() + (known[-1] if known else 0) < self.deadline

    def add_step(self, at_once: int, took: float) -> None:
        """Count a run of a size."""
        self.times.setdefault(at_once, []).append(took)
        self.requests += at_once

    def add_length(self, tokens: int, took: float) -> None:
        """Count a prompt that was alone."""
        self.alone[tokens] = took
        self.requests += 1
        self._rate = min(self._rate, took / tokens)
        expected = min(self.alone.values()) + self._rate * tokens
        self._in_a_row = 0 if took > SLOW * expected else self._in_a_row + 1
        if took > expected + COMPILED:
            self.compiled.append(tokens)

    def lengths_done(self) -> bool:
        """Return whether many prompts in a row were not slow, or the time is up."""
        return self._in_a_row >= PATIENCE or (time.monotonic() >= self.deadline and not self._compiling())

    def _compiling(self) -> bool:
        """Return whether most of the last lengths compiled something, and the longest time is not up."""
        last = list(self.alone)[-RECENT:]
        latest = self.began + LONGER * self.seconds
        return time.monotonic() < latest and 2 * sum(tokens in self.compiled for tokens in last) > len(last)

    def warm(self, at_once: int) -> bool:
        """Return whether a size took no less time than before, or at once about what an earlier warm-up ended with."""
        times = self.times[at_once]
        if len(times) > 1:
            return times[-1] > STEADY * times[-2]
        return self.known.get(at_once, 0.0) > STEADY * times[0]

    def as_before(self, at_once: int) -> bool:
        """Return whether an earlier warm-up knows a size, and all that ran took what it says."""
        return at_once in self.known and bool(self.times) and all(map(self.warm, self.times))

    def to_keep(self, engine: str) -> str:
        """Return the JSON of what the sizes take at full speed, for the next start of the same ``engine``.

        A size that ran once keeps its earlier time, so that noise does not add up from start to start.
        """
        steady = {size: times[-1] for size, times in self.times.items() if len(times) > 1 and self.warm(size)}
        seconds = {str(size): round(took, 3) for size, took in {**self.known, **steady}.items()}
        return json.dumps({"engine": engine, "seconds": seconds})

    def summary(self, left: str) -> str:
        """Return a line for the journal; ``left`` is what is left to do."""
        took = time.monotonic() - self.began
        figures = ", ".join(f"{at_once}: {_describe(times)} s" for at_once, times in self.times.items())
        alone = f"{len(self.alone)} lengths alone, of which {len(self.compiled)} compiled something"
        return f"Warm-up: {self.requests} requests in {took:.1f} s, {left} ({figures}; {alone})"


def read_kept(text: str, engine: str) -> dict[int, float]:
    """Return the times of to_keep() of the same ``engine``; empty for any other text."""
    try:
        kept = load_json(text)
        found = {int(size): float(took) for size, took in kept["seconds"].items()}
        same = kept["engine"] == engine
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError):
        return {}
    return found if same and all(0 < took < 3600 for took in found.values()) else {}


def completion(model: str, vocabulary: int, tokens: int, number: int, output: int = OUTPUT) -> dict[str, Any]:
    """Return a request of random tokens, so that no cache contains its prompt or a beginning of it."""
    return {
        "model": model,
        "prompt": [random.randrange(vocabulary // 10, vocabulary) for _token in range(tokens)],  # noqa: S311
        "max_tokens": output,
        "ignore_eos": True,
        # Greedy and random sampling use different kernels.
        **({"temperature": 0} if number % 2 == 0 else {"temperature": 1, "top_p": 0.9, "top_k": 40}),
    }


def _describe(times: list[float]) -> str:
    first, *others = times
    return f"{first:.2f} then {others[-1]:.2f}" if others else f"{first:.2f}"
