# SPDX-License-Identifier: GPL-3.0-or-later
"""End the requests of clients that read their answers so slowly that others wait for the places.

Only root may ask HAProxy for its streams and end one: with the same right a program reads the memory of HAProxy, and
sends requests elsewhere. So the agent, which reads what engines answer, does not have it. The master knows replaced
workers, which still have the requests of the time before a reload.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import Callable, Iterator

from ..common.files_host import publish
from ..common.lines_host import write_line
from ..common.loop_host import Loop
from ..common.unix_socket_host import ask_root
from .readers import ENDED, Answer, Looks, Pressed, answers_of, judge, pressed, unread_streams
from .stat_rows import read_rows

# Seconds between two looks, and without one until an answer counts as read meanwhile.
INTERVAL, FORGOTTEN = 5.0, 20.0
# Streams whose details are asked for at a time: HAProxy takes a line as long as its buffer.
_AT_ONCE = 200


class Readers:
    """The answers that wait for their clients, in all workers."""

    def __init__(self, admin: str, master: str, counter: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.admin, self.master, self.counter, self.clock = admin, master, counter, clock
        self.looks: Looks = {}
        self.looked_at, self.ended = clock(), 0
        self._count()

    def step(self) -> float:
        """Look once; return the seconds until the next time."""
        # HAProxy may not run, or start again.
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            replaced = self._replaced()
            found = pressed(read_rows(ask_root(self.admin, "show stat -1 6 -1")), bool(replaced))
            self._end_slow(["", *replaced], found)
        return INTERVAL

    def _end_slow(self, workers: list[str], found: Pressed) -> None:
        answers = [each for worker in workers for each in self._answers(worker, found)] if found.full else []
        now = self.clock()
        before = self.looks if now - self.looked_at < FORGOTTEN else {}
        self.looks, slow = judge(before, answers, now, found.waits)
        self.looked_at = now
        for answer, seconds, read in slow:
            if self._ends(answer):
                self.looks[answer.key] = ENDED
                self.ended += 1
                write_line(
                    f"{answer.service}: ended the request of {answer.client}, which read {read} bytes of the answer in "
                    f"{seconds:.0f} s while others waited for its place"
                )
        if slow:
            self._count()

    def _answers(self, worker: str, found: Pressed) -> Iterator[Answer]:
        """Read the answers of a worker that wait for their clients; the current one has no name."""
        streams = unread_streams(self._ask(worker, ["show sess"]), found.full)
        names = sorted(streams)
        for first in range(0, len(names), _AT_ONCE):
            details = self._ask(worker, [f"show sess {name}" for name in names[first : first + _AT_ONCE]])
            yield from answers_of(details, worker, streams)

    def _replaced(self) -> list[str]:
        """Return the workers that complete the requests of a time before a reload, by their numbers."""
        with contextlib.suppress(OSError):
            _workers, _heading, old = ask_root(self.master, "show proc;quit", 2, 5).partition("# old workers")
            return re.findall(r"(?m)^(\d{1,9})\s+worker\s", old)
        # Started without a socket of the master, whose replaced workers nobody can ask.
        return []

    def _ask(self, worker: str, commands: list[str]) -> str:
        """Return the answers to commands of one worker."""
        if not worker:
            return ask_root(self.admin, ";".join(commands))
        with contextlib.suppress(OSError):
            return ask_root(self.master, ";".join([*(f"@!{worker} {each}" for each in commands), "quit"]), 2, 10)
        # It has ended meanwhile.
        return ""

    def _ends(self, answer: Answer) -> bool:
        """End a request; return whether HAProxy did. If it is too busy to answer, the next look tries again."""
        command = f"shutdown session {answer.stream}"
        with contextlib.suppress(OSError):
            if answer.worker:
                return "No such" not in ask_root(self.master, f"@!{answer.worker} {command};quit", 2, 10)
            return "No such" not in ask_root(self.admin, command)
        return False

    def _count(self) -> None:
        """Tell the agent, which has a page for Prometheus, how many requests were ended."""
        publish(self.counter, f"{self.ended}\n", durable=False)


def watch(admin: str, master: str, counter: str) -> None:
    """Look until the unit stops."""
    readers = Readers(admin, master, counter)
    Loop("slow readers", readers.step, INTERVAL).run()
