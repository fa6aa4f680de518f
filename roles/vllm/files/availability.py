# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell gateways whether an instance takes requests, and refuse requests that would get no answer.

vLLM runs this class before its own code (``--middleware availability.Availability``). It obeys six files in the
instance's directory below /run/vllm: vllm-wait-ready.py makes ``ready`` when vLLM is warm; vllm-drain.py makes
``stopping`` when systemd stops the instance and, once no request runs, ``closed``; the service of the role health
writes into ``unhealthy`` why the instance is sick. Where an instance spans hosts, vllm-group.py makes ``watched``, and
calls ``ready`` ``withdrawn`` while it misses one of them.
"""

from __future__ import annotations

import os
from typing import Any, Awaitable, Callable, Dict, MutableMapping

import vllm_hold
import vllm_models
import vllm_operator
import vllm_residents
import vllm_usage

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Dict[str, Any]]]
Send = Callable[[Dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DIRECTORY = os.environ["AVAILABILITY_DIRECTORY"]
READY, STOPPING, CLOSED, WITHDRAWN, UNHEALTHY, GROUP = (
    os.path.join(DIRECTORY, name) for name in ("ready", "stopping", "closed", "withdrawn", "unhealthy", "watched")
)
# What gateways answer while they have no server.
RETRY_AFTER = b"5"
# With this header, GET /health returns vLLM's own answer even before the instance is ready.
PROBE = b"availability-probe"
# A hanging engine answers these too.
GENERATES_NOTHING = ("/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/load_lora_adapter")
# Monitoring and gateways request these paths. They do not count as requests of clients.
WATCHED = ("/health", "/metrics", vllm_usage.RECORDS_PATH)


class Availability:
    """ASGI middleware: GET /health answers 503 before the instance is ready, and 404 while it is stopping.

    All other requests are served until it is closed; from then on they get 503. While a host of the instance is
    missing they get 503 too, with ``retry-after``: vLLM would take them and never answer. Each answer of this class has
    the header ``open-requests``: the number of requests that this API server has not finished answering.

    Requests for which a gateway asks are counted (vllm_usage.py), and those for models that its client may not use are
    refused (vllm_models.py). Where a plan has switched on vLLM's endpoints for operators, others cannot reach them
    (vllm_operator.py), and requests wait while an adapter is replaced (vllm_hold.py). Where instances share chips,
    requests for a sleeping one wait (vllm_residents.py).

    The answer of GET /metrics has the header ``unhealthy`` while the instance is sick. It serves on: whether another
    server can take its place is for the gateway to decide. Where the instance spans hosts, it has ``unanswered`` too:
    how many requests have no byte of an answer. vLLM's own figures stand still when an engine hangs, and a request that
    came after that is in none of them.
    """

    def __init__(self, app: App) -> None:
        records = os.path.join(vllm_usage.CACHE, os.path.basename(DIRECTORY), "usage")
        self.app: App = vllm_models.Models(vllm_usage.Usage(app, records, CLOSED))
        self.guard, self.hold = vllm_operator.Guard(DIRECTORY), vllm_hold.Hold(DIRECTORY)
        self.gate: vllm_residents.Gate | None = None
        if os.environ.get(vllm_residents.VARIABLE):
            self.app = self.gate = vllm_residents.Gate(self.app, self.guard, CLOSED)
        self.open = 0
        self.unanswered: set[Request | None] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it to vLLM."""
        path = scope.get("path")
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif self.guard.forbids(scope):
            await self._refuse(send, 404, b"only operators on the host may call this\n")
        elif self.gate and self.gate.is_own(scope):
            # Not counted: the program on the host asks all the time.
            await self.gate.obey(scope, receive, send)
        elif path == "/health" and os.path.exists(STOPPING):
            await self._refuse(send, 404, b"this instance is stopping\n")
        elif path == "/health" and not os.path.exists(READY) and PROBE not in dict(scope["headers"]):
            await self._refuse(send, 503, b"this instance is starting\n")
        elif path in WATCHED:
            told = self._describe() if path == "/metrics" else []
            await self.app(scope, receive, _telling(send, told) if told else send)
        elif scope["type"] == "http" and os.path.exists(CLOSED):
            await self._refuse(send, 503, b"this instance is stopping\n")
        elif scope["type"] == "http" and os.path.exists(WITHDRAWN):
            await self._refuse(send, 503, b"a host of this instance is missing\n", (b"retry-after", RETRY_AFTER))
        else:
            self.open += 1
            request = None
            if self.hold.concerns(scope):
                receive = self.hold.delayed(receive)
            if scope.get("method") == "POST" and path not in GENERATES_NOTHING and os.path.exists(GROUP):
                request = Request(self.unanswered, receive, send)
                receive, send = request.receive, request.send
            try:
                await self.app(scope, receive, send)
            finally:
                self.open -= 1
                self.unanswered.discard(request)

    def _describe(self) -> list[tuple[bytes, bytes]]:
        """Return the headers for those who look at the instance."""
        reason = _unhealthy()
        told = [(b"unhealthy", reason)] if reason else []
        return [*told, (b"unanswered", b"%d" % len(self.unanswered))] if os.path.exists(GROUP) else told

    async def _refuse(self, send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
        headers = [
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            (b"open-requests", b"%d" % self.open),
            *more,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Request:
    """A request that is among the unanswered ones from its last byte to the first byte of its answer.

    A client that is slow to send or to read is no sign that the engine hangs.
    """

    def __init__(self, unanswered: set[Request | None], receive: Receive, send: Send) -> None:
        self._unanswered, self._receive, self._send = unanswered, receive, send

    async def receive(self) -> dict[str, Any]:
        """Return the next part of the request."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._unanswered.add(self)
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """Send the next part of the answer; a stream has its headers long before its first token."""
        if message["type"] == "http.response.body":
            self._unanswered.discard(self)
        await self._send(message)


def _unhealthy() -> bytes:
    """Return why the instance is sick, empty where it is well."""
    try:
        with open(UNHEALTHY, "rb") as file:
            text = file.read(200)
    except OSError:
        return b""
    return bytes(byte if 32 <= byte < 127 else 63 for byte in text.strip())


def _telling(send: Send, told: list[tuple[bytes, bytes]]) -> Send:
    """Return ``send`` with more headers in the answer."""

    async def telling(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *told]}
        await send(message)

    return telling
