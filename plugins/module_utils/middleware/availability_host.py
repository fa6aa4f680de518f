# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell gateways whether an instance takes requests, and refuse requests that would get no answer.

vLLM runs this class before its own code (``--middleware availability.Availability``). It obeys seven files in the
instance's directory below /run/vllm: vllm-wait-ready.py makes ``ready`` when vLLM is warm; vllm-drain.py makes
``stopping`` when systemd stops the instance and, once no request runs, ``closed``; the service of the role health
writes into ``unhealthy`` why the instance is sick; vllm-scale.py makes ``spare`` when the other replicas are enough.
Where an instance spans hosts, vllm-group.py makes ``watched``, and calls ``ready`` ``withdrawn`` while it misses one of
them.
"""

from __future__ import annotations

import os

from ..instance.marks import (
    CACHE_DIR,
    CLOSED,
    OPEN_HEADER,
    PROBE,
    READY,
    SPARE,
    STOPPING,
    UNANSWERED_HEADER,
    UNHEALTHY,
    WATCHED,
    WITHDRAWN,
)
from ..usage.record import RECORDS_PATH
from . import residents_host
from .arrival_host import Arrival
from .asgi import App, Message, Receive, Scope, Send, send_answer, with_headers
from .hold_host import Hold
from .models import Models
from .operator_host import Guard
from .steering import PLACE, Steering
from .usage_host import Usage

# What gateways answer while they have no server.
RETRY_AFTER = b"5"
# With this header, GET /health returns vLLM's own answer even before the instance is ready.
_PROBE = next(iter(PROBE)).lower().encode()
# A hanging engine answers these too.
GENERATES_NOTHING = ("/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/load_lora_adapter")
# Monitoring and gateways request these paths. They do not count as requests of clients.
MONITORED = ("/health", "/metrics", RECORDS_PATH)


class Availability:
    """ASGI middleware: GET /health answers 503 before the instance is ready, and 404 while it is stopping.

    All other requests are served until it is closed; from then on they get 503. One whose body comes too slowly gets
    408 (arrival_host.py). While a host of the instance is missing they get 503 too, with ``retry-after``: vLLM would
    take them and never answer. Each answer of this class has the header ``open-requests``: the number of requests that
    this API server has not finished answering.

    Requests for which a gateway asks are counted (usage_host.py), those for models that its client may not use are
    refused (models.py), and what could steer the engine is removed from them (steering.py). Where a plan has switched
    on vLLM's endpoints for operators, others cannot reach them (operator_host.py), and requests wait while an adapter
    is replaced (hold_host.py). Where instances share chips, requests for a sleeping one wait (residents_host.py).

    The answer of GET /metrics has the header ``unhealthy`` while the instance is sick. It serves on: whether another
    server can take its place is for the gateway to decide. Where the instance spans hosts, it has ``unanswered`` too:
    how many requests have no byte of an answer. vLLM's own figures stand still when an engine hangs, and a request that
    came after that is in none of them.
    """

    def __init__(self, app: App) -> None:
        self.directory = os.environ["AVAILABILITY_DIRECTORY"]
        self.closed_file = os.path.join(self.directory, CLOSED)
        # Both runtimes let the instance write there, and it outlives a restart. All API servers of it share it.
        records = os.path.join(CACHE_DIR, os.path.basename(self.directory), "usage")
        # Where another host may compute the prompt, routed_host.py has judged where its KV cache is.
        kept = (PLACE,) if "PREFILL_HOSTS" in os.environ else ()
        self.app: App = Models(Usage(Steering(app, kept), records, self.closed_file))
        self.guard, self.hold = Guard(self.directory), Hold(self.directory)
        self.gate: residents_host.Gate | None = None
        if os.environ.get(residents_host.VARIABLE):
            self.app = self.gate = residents_host.Gate(self.app, self.guard, self.closed_file)
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
        elif path == "/health" and self._has(STOPPING):
            await self._refuse(send, 404, b"this instance is stopping\n")
        elif path == "/health" and self._has(SPARE) and _PROBE not in dict(scope["headers"]):
            await self._refuse(send, 404, b"the other replicas are enough\n")
        elif path == "/health" and not self._has(READY) and _PROBE not in dict(scope["headers"]):
            await self._refuse(send, 503, b"this instance is starting\n")
        elif path in MONITORED:
            told = self._describe() if path == "/metrics" else []
            await self.app(scope, receive, with_headers(send, *told) if told else send)
        elif scope["type"] == "http" and self._has(CLOSED):
            await self._refuse(send, 503, b"this instance is stopping\n")
        elif scope["type"] == "http" and self._has(WITHDRAWN):
            await self._refuse(send, 503, b"a host of this instance is missing\n", (b"retry-after", RETRY_AFTER))
        else:
            self.open += 1
            request = None
            if scope["type"] == "http":
                arrival = Arrival(scope, receive, send)
                receive, send = arrival.receive, arrival.send
            if self.hold.concerns(scope):
                receive = self.hold.delayed(receive)
            if scope.get("method") == "POST" and path not in GENERATES_NOTHING and self._has(WATCHED):
                request = Request(self.unanswered, receive, send)
                receive, send = request.receive, request.send
            try:
                await self.app(scope, receive, send)
            finally:
                self.open -= 1
                self.unanswered.discard(request)

    def _describe(self) -> list[tuple[bytes, bytes]]:
        """Return the headers for those who look at the instance."""
        reason = self._unhealthy()
        told = [(UNHEALTHY.encode(), reason)] if reason else []
        return [*told, (UNANSWERED_HEADER.encode(), b"%d" % len(self.unanswered))] if self._has(WATCHED) else told

    def _has(self, mark: str) -> bool:
        return os.path.exists(os.path.join(self.directory, mark))

    def _unhealthy(self) -> bytes:
        """Return why the instance is sick, empty where it is well."""
        try:
            with open(os.path.join(self.directory, UNHEALTHY), "rb") as file:
                text = file.read(200)
        except OSError:
            return b""
        return bytes(byte if 32 <= byte < 127 else 63 for byte in text.strip())

    async def _refuse(self, send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
        own = (b"connection", b"close"), (OPEN_HEADER.encode(), b"%d" % self.open)
        await send_answer(send, status, body, b"text/plain", *own, *more)


class Request:
    """A request that is among the unanswered ones from its last byte to the first byte of its answer.

    A client that is slow to send or to read is no sign that the engine hangs.
    """

    def __init__(self, unanswered: set[Request | None], receive: Receive, send: Send) -> None:
        self._unanswered, self._receive, self._send = unanswered, receive, send

    async def receive(self) -> Message:
        """Return the next part of the request."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._unanswered.add(self)
        return message

    async def send(self, message: Message) -> None:
        """Send the next part of the answer; a stream has its headers long before its first token."""
        if message["type"] == "http.response.body":
            self._unanswered.discard(self)
        await self._send(message)
