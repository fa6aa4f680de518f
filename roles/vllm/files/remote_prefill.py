# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have another host compute the prompt of a request, before vLLM on this host computes the answer.

vLLM runs this class before its own code (``--middleware remote_prefill.RemotePrefill``) on the decode hosts of an
instance. ``PREFILL_HOSTS`` has the addresses with ports of the prefill hosts. One of them gets the request with a limit
of one token, and says in its answer where the KV cache of the prompt is. vLLM's connector on this host fetches it.

Where no prefill host can do that, vLLM on this host computes the prompt too: slower, but a right answer.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import sys
from typing import Any, Awaitable, Callable, Dict, MutableMapping

Scope = MutableMapping[str, Any]
Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The requests for which vLLM can take a KV cache from elsewhere, and their limits of tokens. Releases that cannot do it
# for one of them answer without saying where the KV cache is.
PATHS = {
    "/v1/completions": "max_tokens",
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}
# With these, the host that answers has to compute the prompt: for each of several answers, or because the answer says
# something about the prompt.
LOCAL = ("prompt_logprobs", "echo", "use_beam_search")
# Says where the KV cache of a prompt is. No client may say that: this host would fetch from any address.
PLACE = "kv_transfer_params"
# What only the host that answers is asked.
OF_ANSWER = (
    "stream", "stream_options", "min_tokens", "max_completion_tokens", "max_tokens", "max_output_tokens", "logprobs",
    "top_logprobs", "store", "background",
)  # fmt: skip
# What the prefill host is asked for.
ASKED = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
# Seconds between two checks of a prefill host, until it must have answered one, and until a prompt must be computed.
# TRIES: checks in a row without an answer after which it is lost.
INTERVAL, PATIENCE, LONGEST, TRIES = 2.0, 5.0, 300.0, 3
# Headers of the client that the prefill host needs too.
PASSED = (b"authorization", b"x-request-id")
# vllm-wait-ready.py makes it when vLLM is warm.
READY = os.path.join(os.environ["AVAILABILITY_DIRECTORY"], "ready")
# Says on each answer who computed the prompt: another host, or this one.
HEADER, REMOTE, HERE = b"prefill", b"remote", b"local"


class PrefillHost:
    """One prefill host: whether it answers, and how many prompts it computes for this process."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.host, _colon, self.port = address.rpartition(":")
        self.up = False
        # The id of its engine, as its last answer has it; another one after a restart.
        self.engine: Any = None
        self.busy = 0
        self.silent = 0
        self.lost = asyncio.Event()

    async def watch(self) -> None:
        """Check it for ever."""
        while True:
            await self.check()
            await asyncio.sleep(INTERVAL)

    async def check(self) -> None:
        """Ask whether it is healthy. One that is silent may only be busy, so it has more than one try."""
        status = 0
        try:
            status, _body = await asyncio.wait_for(self._ask("GET", "/health", [], b""), PATIENCE)
        except asyncio.TimeoutError:
            self.silent += 1
            if self.silent < TRIES:
                return
        except (OSError, ValueError, http.client.HTTPException):
            pass
        self.silent = self.silent if status == 0 else 0
        self.mark(status == http.client.OK, gone=status == 0)

    def mark(self, up: bool, gone: bool = False) -> None:
        """Record whether it computes prompts. Requests that wait for one that is gone are computed elsewhere.

        One that is stopping is not gone: it completes what it has begun.
        """
        if up != self.up:
            words = "computes prompts" if up else f"{'does not answer' if gone else 'stops'}, so it computes no prompts"
            print(f"Prefill host {self.address} {words}", file=sys.stderr, flush=True)
        self.up = up
        if gone:
            self.engine = None
            self.lost.set()
            self.lost = asyncio.Event()

    async def compute(self, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[int, bytes]:
        """Return status and body of an answer; status 0 where the host is lost meanwhile."""
        asking = asyncio.ensure_future(self._ask("POST", path, headers, body))
        losing = asyncio.ensure_future(self.lost.wait())
        self.busy += 1
        try:
            await asyncio.wait({asking, losing}, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else (0, b"")
        except (OSError, ValueError, http.client.HTTPException):
            # Its process has ended: others need not try.
            self.mark(False, gone=True)
            return 0, b""
        finally:
            self.busy -= 1
            for task in (asking, losing):
                task.cancel()

    async def _ask(self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[int, bytes]:
        """Return status and body of an answer. Raises OSError and http.client.HTTPException."""
        reader, writer = await asyncio.open_connection(self.host.strip("[]"), int(self.port))
        try:
            lines = [f"{method} {path} HTTP/1.1".encode(), b"host: " + self.address.encode(), b"connection: close"]
            lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
            lines += [name + b": " + value for name, value in headers]
            writer.write(b"\r\n".join([*lines, b"", body]))
            await writer.drain()
            return parse(await reader.read())
        finally:
            writer.close()


class _Received:
    """What http.client reads an answer from, in place of a socket."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.text)


def parse(text: bytes) -> tuple[int, bytes]:
    """Return status and body of an HTTP answer. Raises http.client.HTTPException where it is not complete."""
    answer = http.client.HTTPResponse(_Received(text))  # type: ignore[arg-type]
    answer.begin()
    return answer.status, answer.read()


def read_request(body: bytes) -> dict[str, Any] | None:
    """Return the request in a body; None where it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_remote(asked: dict[str, Any]) -> bool:
    """Return whether another host can compute the prompt of a request."""
    prompt = asked.get("prompt")
    # A list of numbers is one prompt, any other list several.
    several = isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt)
    one = all(asked.get(name) in (None, 1) for name in ("n", "best_of"))
    return one and not several and not any(asked.get(name) for name in LOCAL)


def shortened(path: str, asked: dict[str, Any]) -> bytes:
    """Return the body of the request for the prefill host, which answers with one token."""
    kept = {name: value for name, value in asked.items() if name not in OF_ANSWER}
    store = {"store": False} if path == "/v1/responses" else {}
    return json.dumps({**kept, **store, PATHS[path]: 1, "stream": False, PLACE: ASKED}).encode()


class RemotePrefill:
    """ASGI middleware: adds to a request where the KV cache of its prompt is.

    Answers have the header ``prefill``: ``remote``, or ``local`` where this host computed the prompt.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.hosts = [PrefillHost(address) for address in os.environ["PREFILL_HOSTS"].split()]
        self.watching: list[Any] = []
        # Engines from which a transfer has failed. NIXL does not connect again with one, until it has another id.
        self.broken: set[Any] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the prompt of a request computed, and hand the request to vLLM."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self._begin()
        if scope.get("path") not in PATHS or scope.get("method") != "POST":
            await self.app(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:
            return
        who, body = await self._prefilled(scope, body)
        engine = engine_in(body) if who == REMOTE else None

        def failed() -> None:
            if engine is not None:
                self.broken.add(engine)
                print(f"No transfer from engine {engine}: prompts are computed here", file=sys.stderr, flush=True)

        await self.app(with_length(scope, body), replay(body, receive), telling(send, who, failed))

    async def _begin(self) -> None:
        """Start to watch the prefill hosts, with the first request: only then the event loop runs."""
        if self.watching:
            return
        self.watching = [asyncio.ensure_future(host.watch()) for host in self.hosts]

    async def _prefilled(self, scope: Scope, body: bytes) -> tuple[bytes, bytes]:
        """Have the prompt computed; return who did it, and the body for vLLM on this host."""
        asked = read_request(body)
        if asked is None:
            return HERE, body
        if PLACE in asked:
            del asked[PLACE]
            body = json.dumps(asked).encode()
        # Until it is ready, its own requests warm it up: for prompts too, which it may have to compute.
        found = await self._ask(scope, asked) if is_remote(asked) and os.path.exists(READY) else None
        return (REMOTE, json.dumps({**asked, PLACE: found}).encode()) if found else (HERE, body)

    async def _ask(self, scope: Scope, asked: dict[str, Any]) -> Any:
        """Return where the KV cache of the prompt is, None where no prefill host has computed it."""
        headers = [(name, value) for name, value in scope["headers"] if name in PASSED]
        short = shortened(scope["path"], asked)
        usable = (each for each in self.hosts if each.up and each.engine not in self.broken)
        for host in sorted(usable, key=lambda each: each.busy):
            status, answer = await host.compute(scope["path"], headers, short)
            if status == http.client.OK:
                found = place_in(answer)
                host.engine = found.get("remote_engine_id") if found else None
                if host.engine not in self.broken:
                    return found
                continue
            if http.client.BAD_REQUEST <= status < http.client.INTERNAL_SERVER_ERROR:
                # The request itself is wrong. vLLM on this host explains that to the client.
                return None
        return None


def place_in(answer: bytes) -> Any:
    """Return where the KV cache is; None where the answer does not say it."""
    try:
        return json.loads(answer).get(PLACE)
    except (ValueError, AttributeError):
        return None


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request, None where the client has gone."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return ``receive`` for a body that has been read."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


def with_length(scope: Scope, body: bytes) -> Scope:
    """Return the scope with the length of a new body."""
    names = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in names]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % len(body))]}


def engine_in(body: bytes) -> Any:
    """Return the id of the engine from which the KV cache of a request comes."""
    return json.loads(body)[PLACE].get("remote_engine_id")


def telling(send: Send, who: bytes, failed: Callable[[], None]) -> Send:
    """Return ``send`` with a header that says who computed the prompt; it calls ``failed`` where vLLM has failed."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] >= http.client.INTERNAL_SERVER_ERROR:
                failed()
            message = {**message, "headers": [*message.get("headers", ()), (HEADER, who)]}
        await send(message)

    return told
