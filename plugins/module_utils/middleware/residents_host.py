# SPDX-License-Identifier: GPL-3.0-or-later
"""Let requests for a sleeping model wait until its chips are free.

Instances with the same ``residents`` share chips, and one of them is awake. In each of them availability_host.py uses
this module. On the host vllm-residents.py decides who is awake: it asks here who waits (``GET /residents``), puts one
instance to sleep and wakes another. Here the order is kept that vLLM needs: no request reaches an engine that sleeps,
and no engine is put to sleep under a request.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.parse
import uuid
from collections import deque
from typing import Any

from .asgi import App, Message, Receive, Scope, Send, read_body, replay, route_of, send_answer
from .operator_host import Guard

VARIABLE = "RESIDENTS"
# A client waits so many seconds at most; the environment of the instance may set another number.
WAIT = float(os.environ.get("RESIDENTS_WAIT") or 300)
RETRY_AFTER = b"5"
STATUS, SLEEP, WAKE = "/residents", "/sleep", "/wake_up"
OWN = (STATUS, SLEEP, WAKE)
# POST requests that vLLM answers without its chips.
NEED_NO_CHIPS = ("/v1/messages/count_tokens", "/tokenize", "/detokenize")
# An answer to STATUS takes so many seconds at most, and so does the wait for running requests before a sleep.
LONGEST_POLL = 30.0
# While requests still run, the program asks for the sleep again and again, and the gate stays closed between two calls.
# After so many seconds without a call it opens: the program has ended.
LEASE = 10.0
# How often a waiting request checks that the instance is not stopping.
INTERVAL = 1.0
# So many requests wait at once, from all clients, with so many bytes: each keeps its body in memory.
MOST, MOST_BYTES = 5000, 1 << 30
# How a wait ended: the gate is open, the client has gone, too many others wait, the time is up, the instance stops.
OPEN, GONE, FULL, LATE, STOPPING = "open", "gone", "full", "late", "stopping"
REFUSALS = {
    FULL: b"this model sleeps, and too many requests wait for it\n",
    LATE: b"this model sleeps, and its chips did not become free in time\n",
    STOPPING: b"this instance is stopping\n",
}


class Gate:
    """ASGI middleware: it hands requests on while vLLM is awake, and lets them wait while it sleeps.

    ``closed_file`` exists when the instance accepts no requests because it stops.
    """

    def __init__(self, app: App, guard: Guard, closed_file: str) -> None:
        self.app, self._guard, self._closed_file = app, guard, closed_file
        # The state of vLLM, None where a call has failed. It starts awake.
        self.asleep: bool | None = False
        self.closed = False
        # Running requests, and when the last one ended.
        self.running, self.ended = 0, 0.0
        # Since when each request waits, the oldest first, and the bytes of their bodies.
        self.waiting: dict[object, float] = {}
        self._bytes = 0
        self.version = 0
        # Tells the program on the host that vLLM has started again.
        self.process = uuid.uuid4().hex
        # One for each who waits: asyncio walks all that wait for one future when one of them no longer does.
        self._news: set[asyncio.Future[None]] = set()
        self._lease: asyncio.TimerHandle | None = None

    def is_own(self, scope: Scope) -> bool:
        """Return whether a request is for ``obey``."""
        return scope["type"] == "http" and route_of(scope) in OWN

    async def obey(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the program on the host."""
        if not self._guard.knows(scope):
            return await send_answer(send, 404, b"only operators on the host may call this\n")
        listener, route = Listener(receive), route_of(scope)
        if route == SLEEP:
            return await self._sleep(scope, listener, send)
        if route == WAKE:
            return await self._wake(scope, listener, send)
        await self._await_news(_number(scope, "after", -1), _number(scope, "within", 0), listener)
        return await self._answer_status(send, 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on; one that needs the chips waits for them first.

        Until its whole body is here, a request neither waits nor runs: vLLM computes nothing before, and who sends
        slowly must not keep the chips from the other instances.
        """
        if not _needs_chips(scope):
            return await self.app(scope, receive, send)
        size = 0
        if scope["type"] == "http":
            body = await read_body(receive)
            if body is None:
                return None
            size = len(body)
            receive = replay(body, receive)
        if self.closed:
            listener = Listener(receive)
            ended = await self._wait(listener, size)
            if ended in REFUSALS:
                return await _refuse(scope, send, REFUSALS[ended])
            if ended == GONE:
                return None
            receive = listener.receive
        # Nothing is awaited between the check of the gate and this line.
        self.running += 1
        self._tell(self.running == 1)
        try:
            return await self.app(scope, receive, send)
        finally:
            self.running, self.ended = self.running - 1, time.monotonic()
            self._tell(self.running == 0)

    async def _wait(self, listener: Listener, size: int) -> str:
        """Wait with ``size`` bytes of a body until the gate is open; return how the wait ended."""
        # One larger than all of them may wait alone: the chips come to nobody but who waits.
        if len(self.waiting) >= MOST or (self.waiting and self._bytes + size > MOST_BYTES):
            return FULL
        ticket, began = object(), time.monotonic()
        self.waiting[ticket] = began
        self._bytes += size
        self._tell(len(self.waiting) == 1)
        try:
            while self.closed:
                left = began + WAIT - time.monotonic()
                if left <= 0:
                    return LATE
                if not await listener.wait(self._news, min(left, INTERVAL)):
                    return GONE
                if self.closed and os.path.exists(self._closed_file):
                    return STOPPING
            return OPEN
        finally:
            del self.waiting[ticket]
            self._bytes -= size
            self._tell(not self.waiting)

    async def _sleep(self, scope: Scope, listener: Listener, send: Send) -> None:
        """Close the gate, wait for the running requests, and put vLLM to sleep; 409 where some run too long."""
        self._set_closed(True)
        until = time.monotonic() + _number(scope, "within", LONGEST_POLL)
        while self.running:
            left = until - time.monotonic()
            if left <= 0:
                self._lease = asyncio.get_running_loop().call_later(LEASE, self._open_awake)
                return await self._answer_status(send, 409)
            if not await listener.wait(self._news, left):
                return self._open_awake()
        return await self._pass_on(scope, listener, send, asleep=True)

    async def _wake(self, scope: Scope, listener: Listener, send: Send) -> None:
        """Wake vLLM, and open the gate."""
        if self.asleep is False:
            self._open_awake()
            return await self._answer_status(send, 200)
        return await self._pass_on(scope, listener, send, asleep=False)

    async def _pass_on(self, scope: Scope, listener: Listener, send: Send, asleep: bool) -> None:
        """Have vLLM answer; where it answers 200, it is ``asleep`` from then on, else its state is unknown."""
        self.asleep = None
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                # Before the program hears of it, so that it sees the new state.
                self.asleep = asleep if status == 200 else None
                self._tell()
                self._open_awake()
            await send(message)

        await self.app(scope, listener.receive, watched)

    def _set_closed(self, closed: bool) -> None:
        if self._lease:
            self._lease.cancel()
            self._lease = None
        if self.closed != closed:
            self.closed = closed
            self._tell()

    def _open_awake(self) -> None:
        """Open the gate if vLLM is awake."""
        if self.asleep is False:
            self._set_closed(False)

    def _tell(self, important: bool = True) -> None:
        """Wake those who wait for a change."""
        if not important:
            return
        self.version += 1
        while self._news:
            self._news.pop().set_result(None)

    async def _await_news(self, after: float, within: float, listener: Listener) -> None:
        """Return when the version is another one than ``after``, or ``within`` seconds have passed.

        An instance that stops answers within INTERVAL: after SIGTERM, vLLM ends when its last connection does, and
        until then the others wait for its chips.
        """
        until = time.monotonic() + min(within, LONGEST_POLL)
        while self.version == after:
            left = min(until - time.monotonic(), INTERVAL)
            if left <= 0 or not await listener.wait(self._news, left) or os.path.exists(self._closed_file):
                return

    async def _answer_status(self, send: Send, status: int) -> None:
        now = time.monotonic()
        found = {
            "process": self.process,
            "version": self.version,
            "asleep": self.asleep,
            "closed": self.closed,
            "running": self.running,
            "quiet": round(now - self.ended, 3),
            "waiting": len(self.waiting),
            "waited": round(now - next(iter(self.waiting.values()), now), 3),
        }
        await send_answer(send, status, json.dumps(found).encode(), b"application/json")


class Listener:
    """Reads a request while it waits, so that a client that goes is noticed, and hands on all that was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()
        self._reading: asyncio.Future[Message] | None = None

    async def wait(self, news: set[asyncio.Future[None]], seconds: float) -> bool:
        """Wait for news, more of the request, or the end of the time; return False where the client has gone."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        news.add(change)
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._receive())
        reading = self._reading
        both: set[asyncio.Future[Any]] = {reading, change}
        try:
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.discard(change)
        if not reading.done():
            return True
        self._reading = None
        self._messages.append(reading.result())
        return not str(self._messages[-1]["type"]).endswith(".disconnect")

    async def receive(self) -> Message:
        """Return the next part of the request."""
        if self._messages:
            return self._messages.popleft()
        if self._reading is None:
            return await self._receive()
        # It is not cancelled: what it reads would be lost.
        reading, self._reading = self._reading, None
        return await reading


def _needs_chips(scope: Scope) -> bool:
    """Return whether vLLM needs its chips to answer a request."""
    return scope["type"] == "websocket" or (scope["method"] == "POST" and route_of(scope) not in NEED_NO_CHIPS)


def _number(scope: Scope, name: str, default: float) -> float:
    """Return a number of the query."""
    query = urllib.parse.parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
    try:
        return float(query[name][-1])
    except (KeyError, ValueError):
        return default


async def _refuse(scope: Scope, send: Send, body: bytes) -> None:
    if scope["type"] == "websocket":
        # "Try again later"; before the connection is accepted, the client sees 403.
        return await send({"type": "websocket.close", "code": 1013})
    return await send_answer(send, 503, body, b"text/plain", (b"retry-after", RETRY_AFTER), (b"connection", b"close"))
