# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the seconds of a start went, from the journal of the unit."""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple

FIRST_ANSWER, READY = "first answer", "ready"
# A line of `journalctl --output=short-monotonic`.
_LINE = re.compile(r"\[ *(\d+\.\d+)\] (.*)")
_START = re.compile(r"systemd\[1\]: Starting vllm@")


class Mark(NamedTuple):
    """The line that ends a phase: the first or the last that matches, after the line of another phase.

    vLLM writes a line for each of its workers, and captures graphs for the profile before the real ones.
    """

    phase: str
    pattern: re.Pattern[str]
    last: bool = False
    after: str = ""


# The words of vLLM 0.25.1 to 0.33.0.
MARKS = (
    Mark("imports", re.compile(r" version \d+\.\d+|non-default args: ")),
    Mark("configuration", re.compile(r"Using max model len |Resolved architecture: "), last=True),
    Mark("engine process", re.compile(r"Starting to load model |Loading model from scratch")),
    Mark("weights", re.compile(r"Model loading took |Loading weights took "), last=True),
    Mark("compile", re.compile(r"torch\.compile took |Initial profiling/warmup run took "), last=True),
    Mark("profile", re.compile(r"KV cache size: "), last=True),
    Mark("graphs", re.compile(r"Graph capturing finished "), last=True, after="profile"),
    Mark("API server", re.compile(r"Starting vLLM server on ")),
    Mark(FIRST_ANSWER, re.compile(r'"POST /v1/\S+ HTTP/[\d.]+" 200'), after="API server"),
    Mark("warm-up", re.compile(r": Warm-up")),
    Mark(READY, re.compile(r"systemd\[1\]: Started vllm@")),
)


def read_start(lines: Iterable[str]) -> dict[str, Any]:
    """Return the last start in these lines: whether it is ``ready``, its ``seconds``, and its ``phases``.

    A phase is a pair of its name and its seconds since the end of the one before it. If the line that ends a phase is
    missing, its seconds count to the next.
    """
    began = 0.0
    ends: dict[str, float] = {}
    for at, text in filter(None, map(_parsed, lines)):
        if not began or _START.search(text):
            began, ends = at, {}
        _note(ends, at, text)
    order = sorted(ends.items(), key=lambda end: end[1])
    times = [began, *(at for _phase, at in order)]
    phases = [[phase, round(at - before, 1)] for (phase, at), before in zip(order, times)]
    return {"ready": READY in ends, "seconds": round(ends.get(READY, times[-1]) - began, 1), "phases": phases}


def _parsed(line: str) -> tuple[float, str] | None:
    found = _LINE.match(line)
    return (float(found[1]), found[2]) if found else None


def _note(ends: dict[str, float], at: float, text: str) -> None:
    """Add the phases that this line ends. A running engine captures and loads nothing more."""
    for mark in MARKS:
        due = mark.phase not in ends or (mark.last and READY not in ends)
        if due and (not mark.after or mark.after in ends) and mark.pattern.search(text):
            ends[mark.phase] = at
