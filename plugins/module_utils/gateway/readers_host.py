# SPDX-License-Identifier: GPL-3.0-or-later
"""End the requests of clients that read their answers so slowly that others wait for the places.

Only root may ask HAProxy for its streams and end one: with the same right a program reads the memory of HAProxy, and
sends requests elsewhere. So the agent, which reads what engines answer, does not have it. The master knows replaced
workers, which still have the requests of the time before a reload.

What a look costs grows with the number of streams, never with its square, and HAProxy rests for as long as one takes.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import Callable, Iterator, Mapping

from ..common.files_host import publish
from ..common.lines_host import write_line
from ..common.loop_host import Loop
from ..common.unix_socket_host import ask_root, ask_root_in_parts
from .readers import ENDED, Answer, Looks, Pressed, answers_of, judge, pressed, split_streams, unread_streams
from .stat_rows import read_rows

# Seconds between two looks, and how many count at most: slow looks and failed ones show an answer less often.
INTERVAL, COUNTED = 5.0, 10.0
# HAProxy finds one stream by a walk through all. So many walks take it about as long as the details of all streams.
_WALKS = 50
# Seconds for an answer about all streams, of which there may be some hundred thousand.
_LIST_SECONDS = 300.0


class Readers:
    """The answers that wait for their clients, in all workers."""

    def __init__(self, admin: str, master: str, counter: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.admin, self.master, self.counter, self.clock = admin, master, counter, clock
        self.looks: Looks = {}
        # The replaced workers, and those that did not answer at this look.
        self.replaced: list[str] = []
        self.silent: set[str] = set()
        self.looked_at, self.ended = clock(), 0
        self._count()

    def step(self) -> float:
        """Look once; return the seconds until the next time."""
        began = self.clock()
        # HAProxy may not run, or start again.
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            replaced = self._replaced()
            found = pressed(read_rows(ask_root(self.admin, "show stat -1 6 -1")), bool(replaced))
            self._end_slow(["", *replaced], found, began)
        return max(INTERVAL, self.clock() - began)

    def _end_slow(self, workers: list[str], found: Pressed, began: float) -> None:
        before = self.looks
        self.silent.clear()
        answers = [each for worker in workers for each in self._answers(worker, found)] if found.full else []
        self.looks, slow = judge(before, answers, min(began - self.looked_at, COUNTED), found.waits)
        self.looks = {**{key: each for key, each in before.items() if key[0] in self.silent}, **self.looks}
        self.looked_at, now = began, self.clock()
        for each in slow:
            # The next look goes on.
            if self.clock() - now > INTERVAL:
                break
            self._end(each.answer, found)
        if slow:
            self._count()

    def _end(self, found: Answer, services: Pressed) -> None:
        """End a request if it is still the one that was found: HAProxy gives its address to the next one at once."""
        # If it is too busy to answer, the next look tries again.
        with contextlib.suppress(OSError):
            details = self._details(found.worker, {found.stream: found.service})
            _looks, still = judge(self.looks, details, 0.0, services.waits)
            for answer, seconds, read in still:
                if "No such" in self._shut(answer):
                    continue
                self.looks[answer.key] = ENDED
                self.ended += 1
                write_line(
                    f"{answer.service}: ended the request of {answer.client}, which read {read} bytes of the answer in "
                    f"{seconds:.0f} s while others waited for its place"
                )

    def _answers(self, worker: str, found: Pressed) -> Iterator[Answer]:
        """Read the answers of a worker that wait for their clients; the current one has no name."""
        return self._details(worker, unread_streams(self._ask(worker, ["show sess"]), found.full))

    def _details(self, worker: str, streams: Mapping[str, str]) -> Iterator[Answer]:
        commands = [f"show sess {stream}" for stream in streams] if len(streams) <= _WALKS else ["show sess all"]
        return answers_of(self._ask(worker, commands) if streams else (), worker, streams)

    def _replaced(self) -> list[str]:
        """Return the workers that complete the requests of a time before a reload, by their numbers."""
        try:
            _workers, _heading, old = ask_root(self.master, "show proc;quit", 2, 5).partition("# old workers")
            self.replaced = re.findall(r"(?m)^(\d{1,9})\s+worker\s", old)
        except (ConnectionRefusedError, FileNotFoundError):
            # Started without a socket of the master, whose replaced workers nobody can ask.
            self.replaced = []
        except OSError:
            # Too busy; they have not ended for that.
            pass
        return self.replaced

    def _ask(self, worker: str, commands: list[str]) -> Iterator[str]:
        """Return the answers to commands of one worker, by stream."""
        if not worker:
            yield from split_streams(ask_root_in_parts(self.admin, ";".join(commands), seconds=_LIST_SECONDS))
            return
        command = ";".join([*(f"@!{worker} {each}" for each in commands), "quit"])
        try:
            yield from split_streams(ask_root_in_parts(self.master, command, seconds=_LIST_SECONDS))
        except (OSError, ValueError):
            # It is busy, or has ended meanwhile.
            self.silent.add(worker)

    def _shut(self, answer: Answer) -> str:
        command = f"shutdown session {answer.stream}"
        if answer.worker:
            return ask_root(self.master, f"@!{answer.worker} {command};quit", 2, 10)
        return ask_root(self.admin, command)

    def _count(self) -> None:
        """Tell the agent, which has a page for Prometheus, how many requests were ended."""
        publish(self.counter, f"{self.ended}\n", durable=False)


def watch(admin: str, master: str, counter: str) -> None:
    """Look until the unit stops."""
    readers = Readers(admin, master, counter)
    Loop("slow readers", readers.step, INTERVAL).run()
