# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which clients read their answers so slowly that their requests keep the places of others.

A request has its place at a server until its client has read the answer, and for HAProxy a client is silent only while
it reads nothing at all. So one that reads a byte now and then would keep the place, and let a drain wait, for ever.
It gets some seconds, and one more for each piece that it reads.

HAProxy says until when a client has to read, while there is something to read: up to 2.6 beside the answer (wx), later
beside the client (wex).
"""

from __future__ import annotations

import math
import re
from typing import Collection, Counter, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple

from .state import ROUTER, ROUTERS

# Seconds that a client may leave an answer unread, and the bytes for which it has one more.
FREE, BYTES_A_SECOND = 30.0, 16 * 1024
# States of a server that is drained, stops or is in maintenance.
_LEAVES = ("DRAIN", "NOLB", "MAINT")
# A stream in the list: its address in memory and its backend. It has bytes that wait for the client.
_WAITS = re.compile(
    r"(?m)^(0x[0-9a-f]{1,16}): proto=[^\n]* be=(\S+) srv=[^\n]*(?:rp\[[^]\n]*,wx=|scf=\[[^]\n]*,wex=)[^],\s]"
)
# Its details: a number that no other stream of the worker gets, its client, whether it has a place, the bytes so far.
_HEAD = re.compile(r"(0x[0-9a-f]{1,16}): \[[^]\n]*\] id=(\d{1,20}) proto=\S+ source=(\S+)\n")
_PLACE, _BYTES = re.compile(r" srv_conn=0x"), re.compile(r"\n +res=0x[^\n]* total=(\d{1,20})\)")


class Pressed(NamedTuple):
    """Services with a server without a free place; ``waits`` are those of them where somebody waits for one."""

    full: frozenset[str]
    waits: frozenset[str]


class Answer(NamedTuple):
    """An answer that its client has to read: the stream in a worker, its number, and the bytes that came for it."""

    worker: str
    stream: str
    number: int
    client: str
    service: str
    came: int

    @property
    def key(self) -> tuple[str, str, int]:
        """The stream of a worker, by its number: addresses in memory are used again."""
        return self.worker, self.stream, self.number


class Unread(NamedTuple):
    """Since when an answer has been unread at each look, and how many bytes had come by then."""

    since: float
    came: int


# By the keys of the answers.
Looks = Dict[Tuple[str, str, int], Unread]


# Of an answer that was ended: HAProxy may keep what is left of it for a while.
ENDED = Unread(math.inf, 0)


class Slow(NamedTuple):
    """An answer that has been unread for too long."""

    answer: Answer
    seconds: float
    read: int


def pressed(rows: Sequence[Mapping[str, str]], is_replaced: bool) -> Pressed:
    """Return the services for which slow readers matter, of HAProxy's counters of backends and servers.

    Where a server is drained or stops, somebody waits for all of its requests, those at its router too.
    ``is_replaced`` tells that another worker may still have requests at such a server, which these do not count.
    """
    full: set[str] = set()
    waits: set[str] = set()
    at_work: Counter[tuple[str, str]] = Counter()
    for row in rows:
        at_work[_service(row["pxname"]), _server(row["svname"])] += int(row["scur"] or 0)
    for row in rows:
        service, is_server = _service(row["pxname"]), row["svname"] not in ("FRONTEND", "BACKEND")
        status = row["status"] if is_server else "UP"
        busy = at_work[service, _server(row["svname"])] or (is_replaced and status.startswith(_LEAVES))
        if int(row["qcur"] or 0) or (busy and not status.startswith(("UP", "no check"))):
            waits.add(service)
        elif is_server and 0 < int(row["slim"] or 0) <= int(row["scur"] or 0):
            full.add(service)
    return Pressed(frozenset(full | waits), frozenset(waits))


def _service(backend: str) -> str:
    return backend[len(ROUTERS) :] if backend.startswith(ROUTERS) else backend


def _server(name: str) -> str:
    return name[len(ROUTER) :] if name.startswith(ROUTER) else name


def unread_streams(text: str, services: Iterable[str]) -> dict[str, str]:
    """Return the streams of these services in HAProxy's list that have something for their clients to read."""
    wanted = set(services)
    found = {each[1]: _service(each[2]) for each in _WAITS.finditer(text)}
    return {stream: service for stream, service in found.items() if service in wanted}


def answers_of(text: str, worker: str, streams: Mapping[str, str]) -> list[Answer]:
    """Return the answers of streams that have a place, of HAProxy's details of each."""
    found = []
    for part in re.split(r"(?m)^(?=0x)", text):
        head, came = _HEAD.match(part), _BYTES.search(part)
        if head and came and head[1] in streams and _PLACE.search(part):
            found.append(Answer(worker, head[1], int(head[2]), head[3], streams[head[1]], int(came[1])))
    return found


def judge(before: Looks, answers: Iterable[Answer], now: float, waits: Collection[str]) -> tuple[Looks, list[Slow]]:
    """Return the answers that are unread now, and those that have been for too long where others wait.

    One that HAProxy has handed over as a whole at a look begins from scratch: its client waited for the engine.
    """
    after: Looks = {}
    slow = []
    for answer in answers:
        unread = before.get(answer.key, Unread(now, answer.came))
        seconds, read = now - unread.since, answer.came - unread.came
        if answer.service in waits and seconds > FREE + read / BYTES_A_SECOND:
            slow.append(Slow(answer, seconds, read))
        after[answer.key] = unread
    return after, slow
