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
from typing import Collection, Counter, Dict, Iterable, Iterator, Mapping, NamedTuple, Sequence, Tuple

from .state import ROUTER, ROUTERS

# Seconds that a client may leave an answer unread, and the bytes for which it has one more.
FREE, BYTES_A_SECOND = 30.0, 16 * 1024
# States of a server that is drained, stops or is in maintenance.
_LEAVES = ("DRAIN", "NOLB", "MAINT")
# What begins a stream in HAProxy's list, where it has some hundred characters, and in its details of some thousand.
_BEGIN, _MOST = "\n0x", 1 << 16
# A stream in the list: its address in memory and its backend. Bytes wait for its client, and the side of its server is
# not closed (10). The gateway's own answers have no server, and a complete answer has given its place back.
_WAITS = re.compile(
    r"([0-9a-f]{1,16}): proto=[^\n]* be=(\S+) srv=[^<\s][^\n]*"
    r"(?:rp\[[^]\n]*,wx=|scf=\[[^]\n]*,wex=)[^],\s][^\n]* scb=\[[0-9],"
)
# Its details: a number that no other stream of the worker gets, its client, whether it has a place, whether bytes wait
# for the client, and how many have come so far.
_HEAD = re.compile(r"([0-9a-f]{1,16}): \[[^]\n]*\] id=(\d{1,20}) proto=\S+ source=(\S+)\n")
_PLACE = re.compile(r" srv_conn=0x")
_UNREAD = re.compile(r"\n  scf=0x[^\n]* wex=[0-9]|\n  res=0x[^\n]*\n[^\n]* wex=[0-9]")
_BYTES = re.compile(r"\n +res=0x[^\n]* total=(\d{1,20})\)")


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
    """For how many seconds an answer has been unread at each look, and how many bytes had come before them."""

    seconds: float
    came: int


# By the keys of the answers.
Looks = Dict[Tuple[str, str, int], Unread]


# Of an answer that was ended: HAProxy may keep what is left of it for a while.
ENDED = Unread(-math.inf, 0)


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


def split_streams(parts: Iterable[bytes]) -> Iterator[str]:
    """Split what HAProxy answers about streams, without the ``0x`` that begins each; it may be hundreds of megabytes.

    Raises ValueError for other text.
    """
    rest = "\n"
    for part in parts:
        *complete, rest = (rest + part.decode("latin-1")).split(_BEGIN)
        if len(rest) > _MOST:
            raise ValueError("HAProxy's list of streams cannot be read")
        yield from complete
    yield rest


def unread_streams(lines: Iterable[str], services: Collection[str]) -> dict[str, str]:
    """Return the streams of these services in HAProxy's list that have a place and something unread."""
    found = (_WAITS.match(line) for line in lines)
    streams = {f"0x{each[1]}": _service(each[2]) for each in found if each}
    return {stream: service for stream, service in streams.items() if service in services}


def answers_of(details: Iterable[str], worker: str, streams: Mapping[str, str]) -> Iterator[Answer]:
    """Return the answers of these streams that have a place and are unread, from HAProxy's details."""
    for part in details:
        head = _HEAD.match(part)
        if not head or f"0x{head[1]}" not in streams:
            continue
        stream, came = f"0x{head[1]}", _BYTES.search(part)
        if came and _PLACE.search(part) and _UNREAD.search(part):
            yield Answer(worker, stream, int(head[2]), head[3], streams[stream], int(came[1]))


def judge(before: Looks, answers: Iterable[Answer], passed: float, waits: Collection[str]) -> tuple[Looks, list[Slow]]:
    """Return the answers that are unread now, and those that have been for too long where others wait.

    ``passed`` are the seconds since the look before. An answer that HAProxy has handed over as a whole at a look begins
    from scratch: its client waited for the engine.
    """
    after: Looks = {}
    slow = []
    for answer in answers:
        known = before.get(answer.key)
        unread = Unread(known.seconds + passed, known.came) if known else Unread(0.0, answer.came)
        read = answer.came - unread.came
        if answer.service in waits and unread.seconds > FREE + read / BYTES_A_SECOND:
            slow.append(Slow(answer, unread.seconds, read))
        after[answer.key] = unread
    return after, slow
