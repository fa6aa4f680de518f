# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that sick instances are well again, each in a thread, because a chip or an engine may hang."""

from __future__ import annotations

import math
import queue
import threading
import time
from typing import Iterable, Iterator

from ..vendor_stack.faults import FaultBook
from .instances_host import Instances
from .questions_host import ask_counters
from .settings_host import Settings
from .signs import proof_problem


class Proofs:
    """The proofs that run and that have ended."""

    def __init__(self, settings: Settings, book: FaultBook, instances: Instances) -> None:
        self._settings, self._book, self._instances = settings, book, instances
        self._ended: queue.Queue[tuple[str, str]] = queue.Queue()
        self._begun: dict[str, float] = {}

    def ended(self) -> Iterator[tuple[str, str]]:
        """Return the instances whose proof has ended since the last call, each with its problem, "" for none."""
        while not self._ended.empty():
            yield self._ended.get_nowait()

    def begin(self, names: Iterable[str]) -> None:
        """Begin the proofs that are due."""
        now = time.monotonic()
        for name in names:
            if now - self._begun.get(name, -math.inf) >= self._settings.prove:
                self._begun[name] = now
                threading.Thread(target=self._prove, args=(name,), daemon=True).start()

    def _prove(self, name: str) -> None:
        try:
            problem = self._problem(name)
        except Exception as exc:
            # An odd answer of a tool proves nothing, and is the reason.
            problem = f"the proof failed: {type(exc).__name__}: {exc}"
        self._ended.put((name, problem))

    def _problem(self, name: str) -> str:
        settings, problem = self._settings, ""
        if settings.addresses:
            answer = ask_counters(settings.stack)
            wanted = list(settings.chips.get(name) or settings.addresses)
            problem = answer.problem or proof_problem(wanted, answer.chips, self._book)
        return problem or self._instances.token_problem(name)
