# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the tokens of requests for which a gateway asks, and tell the gateways.

A gateway names itself, the client, the client's team, the request's id and the time on its clock in the header
``x-gateway-usage``, which clients cannot send through it. Without the header this module changes nothing. With it, each
answer gives one record, as JSON in a line of a file in the instance's cache; a record has no text of prompts or
answers. GET /gateway/usage returns the records that a gateway has not read, and waits for new ones. Gateways allow no
client that path.

A stream carries its usage only on request, so this module adds ``stream_options`` to the request, and takes out of the
answer what the client did not ask for. The figure that each chunk has is what counts when the client breaks off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
import urllib.parse
from typing import Any, Awaitable, Callable, Dict, Iterator, MutableMapping, NamedTuple

Scope = MutableMapping[str, Any]
Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADER = b"x-gateway-usage"
RECORDS_PATH = "/gateway/usage"
# Both runtimes let the instance write there, and it outlives a restart. All API servers of an instance share it.
CACHE = "/var/cache/vllm"
# Of one file of records, and of files that are kept: some 300,000 requests that no gateway has read.
FILE_BYTES, FILES = 4 * 1024 * 1024, 16
# Of records in one answer to a gateway.
ANSWER_BYTES = 1024 * 1024
# Seconds that a gateway may wait for a record, and between two looks at the files.
LONGEST_WAIT, LOOK = 5.0, 0.02
# Answers of these paths with usage in streams, and others where nothing is generated.
STREAMS_USAGE = ("/v1/chat/completions", "/v1/completions")
GENERATES_NOTHING = ("/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/load_lora_adapter")
# Of a chunk of a stream.
_USAGE, _END = b',"usage":{', b"\n\n"
_CHOICES, _NO_CHOICES, _FIRST = b'"choices":[', b'"choices":[]', b'"choices":[{"index":0,'
_INDEX = re.compile(rb'"choices":\[\{"index":(\d{1,6})')
_MODEL = re.compile(rb'"model":"([^"\\]{1,256})"')
_TIME = re.compile("[0-9]{1,11}")
_FALSE = ("", "0", "f", "false", "n", "no", "off")
_DECODER = json.JSONDecoder()
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class Tokens(NamedTuple):
    """Tokens of the prompt, those of it that were in the cache, and generated ones."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


def tokens_of(usage: Any) -> Tokens | None:
    """Return the tokens of a usage as one of the three APIs writes it, None for anything else."""
    if not isinstance(usage, dict):
        return None
    if "prompt_tokens" in usage:
        prompt, details = _count(usage, "prompt_tokens"), usage.get("prompt_tokens_details")
        return Tokens(prompt, _count(details, "cached_tokens"), _count(usage, "completion_tokens"))
    if "input_tokens" in usage:
        # Anthropic's API counts what was cached beside the rest.
        read, made = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
        cached = read + _count(usage.get("input_tokens_details"), "cached_tokens")
        return Tokens(_count(usage, "input_tokens") + read + made, cached, _count(usage, "output_tokens"))
    return None


def _count(values: Any, name: str) -> int:
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def last_usage(body: bytes) -> Tokens | None:
    """Return the tokens of the last usage in the text of an answer that is too long to parse."""
    end = len(body)
    while True:
        end = body.rfind(b'"usage":{', 0, end)
        if end < 0:
            return None
        with contextlib.suppress(ValueError):
            # A usage has some hundred bytes.
            found = tokens_of(_DECODER.raw_decode(body[end + 8 : end + 4096].decode("utf-8", "ignore"))[0])
            if found:
                return found


def with_usage(body: bytes) -> tuple[bytes, bool, bool]:
    """Return the body of a request with usage in its stream, and whether the client asked for the last and for each.

    A body that requests no stream, and one that is no JSON, comes back as it is, as if the client had asked for both.
    vLLM reads the last of two equal keys.
    """
    # An escape could hide the key, and so could another encoding.
    if b'"stream"' not in body and b"\\u00" not in body and b"\0" not in body[:4]:
        return body, True, True
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return body, True, True
    if not isinstance(request, dict) or not _truth(request.get("stream")):
        return body, True, True
    options = request.get("stream_options")
    if options is not None and not isinstance(options, dict):
        return body, True, True
    options = options or {}
    last = _truth(options.get("include_usage"))
    each = last and _truth(options.get("continuous_usage_stats"))
    own = {**options, "include_usage": True, "continuous_usage_stats": True}
    if b"\0" in body[:4]:
        return json.dumps({**request, "stream_options": own}).encode(), last, each
    text = body.rstrip()
    return text[:-1] + b',"stream_options":' + json.dumps(own).encode() + b"}", last, each


def _truth(value: Any) -> bool:
    """Return a boolean as vLLM reads it."""
    return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)


class Records:
    """The files of records in ``directory``; a process writes its own, and reads all.

    ``number`` counts the records of this process, those too that could not be written: so a gateway sees how many are
    missing.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.process = f"{time.time_ns()}-{os.getpid()}"
        self.number = 0
        self.file: int | None = None
        self.torn = False

    def add(self, record: dict[str, Any]) -> None:
        """Write a record; a disk that is full must not fail the request."""
        self.number += 1
        line = json.dumps({"number": self.number, **record}, separators=(",", ":")).encode() + b"\n"
        try:
            file = self._open()
            written = os.write(file, b"\n" + line if self.torn else line)
            self.torn = written < len(line)
        except OSError as exc:
            if not self.torn:
                print(f"usage of a request is not recorded: {exc}", flush=True)
            self.torn = True

    def _open(self) -> int:
        if self.file is not None:
            state = os.fstat(self.file)
            if state.st_nlink and state.st_size < FILE_BYTES:
                return self.file
            os.close(self.file)
            self.file = None
        os.makedirs(self.directory, mode=0o750, exist_ok=True)
        for name in self.names()[: -(FILES - 1)]:
            os.unlink(os.path.join(self.directory, name))
        path = os.path.join(self.directory, f"{time.time_ns()}.{self.process}.jsonl")
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        return self.file

    def names(self) -> list[str]:
        """Return the names of the files, the oldest first."""
        with contextlib.suppress(OSError):
            return sorted(name for name in os.listdir(self.directory) if name.endswith(".jsonl"))
        return []

    def read(self, read: dict[str, int]) -> bytes:
        """Return what follows the offsets ``read``: for each file a line with its name and offset, then its lines."""
        found, room = [], ANSWER_BYTES
        for name in self.names():
            path, offset = os.path.join(self.directory, name), read.get(name, 0)
            try:
                if os.stat(path).st_size <= offset:
                    continue
                with open(path, "rb") as file:
                    file.seek(offset)
                    text = file.read(room)
            except OSError:
                continue
            # A line that is being written is for the next time.
            text = text[: text.rfind(b"\n") + 1]
            if text:
                head = json.dumps({"file": name, "end": offset + len(text)}).encode() + b"\n"
                found.append(head + text)
                room -= len(text)
            if room <= 0:
                break
        return b"".join(found)


class Usage:
    """ASGI middleware that counts tokens for gateways; ``closed`` is a file that exists once the instance ends."""

    def __init__(self, app: App, directory: str, closed: str) -> None:
        self.app, self.closed = app, closed
        self.records = Records(directory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request to vLLM, and count it if a gateway asks for it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"]
        if path == RECORDS_PATH:
            return await self._tell(scope, send)
        named = next((value for name, value in scope["headers"] if name == HEADER), None)
        if named is None or scope["method"] != "POST" or path in GENERATES_NOTHING:
            return await self.app(scope, receive, send)
        answer = Answer(path, named, self.records, receive, send)
        if path in STREAMS_USAGE:
            scope = await answer.request(scope)
        try:
            await self.app(scope, answer.receive, answer.send)
        finally:
            answer.end()

    async def _tell(self, scope: Scope, send: Send) -> None:
        """Answer a gateway: records after the offsets in the query, as soon as there is one."""
        query = urllib.parse.parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
        offsets = {
            name: int(value) for text in query.get("after", ()) for name, value in _pairs(text) if value.isdecimal()
        }
        wait = query.get("wait", ["0"])[0]
        ends = time.monotonic() + min(LONGEST_WAIT, float(wait) if wait.isdecimal() else 0)
        body = self.records.read(offsets)
        # A stop of the instance waits for open answers.
        while not body and time.monotonic() < ends and not os.path.exists(self.closed):
            await asyncio.sleep(LOOK)
            body = self.records.read(offsets)
        headers = [(b"content-type", b"application/jsonl"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split(","):
        name, _colon, value = pair.rpartition(":")
        yield name, value


class Answer:
    """The answer to one request: passes it on, and records its tokens before the client has the end of it."""

    def __init__(self, path: str, named: bytes, records: Records, receive: Receive, send: Send) -> None:
        self.path, self.records = path, records
        names = [*named.decode("ascii", "replace").split(), "", "", "", "", ""][:5]
        self.gateway, self.client, self.team, self.id, at = (name[:128] for name in names)
        # By the clock of the gateway, so that a wrong one here puts no tokens into another day.
        self.at = int(at) if _TIME.fullmatch(at) else int(time.time())
        self.began = time.monotonic()
        self._receive, self._send = receive, send
        self.body: bytes | None = None
        self.asked_last = self.asked_each = True
        self.status, self.is_stream, self.text, self.model = 0, False, b"", ""
        self.recorded = self.gone = self.ended = False
        self.streams_usage = path in STREAMS_USAGE
        # What a stream has told so far: the last chunk with usage by the number of the choice, and events with text.
        self.choices: dict[int, bytes] = {}
        # Where a chunk has its choices.
        self.choices_at = 0
        self.events, self.start = 0, Tokens()

    async def request(self, scope: Scope) -> Scope:
        """Read the body, and return the scope for the body with usage in its stream."""
        parts, more = [], True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                self.gone = True
                break
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        whole = b"".join(parts)
        self.body, self.asked_last, self.asked_each = (whole, True, True) if self.gone else with_usage(whole)
        if self.body is whole:
            return scope
        length = (b"content-length", b"%d" % len(self.body))
        return {**scope, "headers": [*(each for each in scope["headers"] if each[0] != length[0]), length]}

    async def receive(self) -> Message:
        """Return the body that was read, then what comes from the client."""
        if self.gone:
            return {"type": "http.disconnect"}
        if self.body is not None:
            body, self.body = self.body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        return message

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer."""
        if message["type"] == "http.response.body" and self.status < 300:
            more, body = message.get("more_body", False), message.get("body", b"")
            self.ended = not more
            if self.is_stream:
                passed = message["body"] = self._events(body, more)
                if more and body and not passed:
                    return
            else:
                self.text += body
                if not more:
                    self._whole(self.text)
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            self.is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
        await self._send(message)

    def end(self) -> None:
        """Record an answer that told no usage."""
        if self.recorded or not (self.status or self.gone) or self.status >= 300:
            return
        told = [_usage_of(chunk) for chunk in self.choices.values()]
        completion = sum(tokens.completion for tokens in told) or self.events
        known = Tokens(
            max((tokens.prompt for tokens in told), default=self.start.prompt), self.start.cached, completion
        )
        tells_none = self.ended and not (self.gone or self.choices or self.events)
        self._record(known, "uncounted" if tells_none else "aborted")

    def _whole(self, body: bytes) -> None:
        """Record the usage of an answer that is no stream."""
        if self.path.startswith(("/v1/chat/", "/v1/responses", "/v1/messages", "/v1/completions")):
            with contextlib.suppress(ValueError, RecursionError):
                answer = json.loads(body)
                if isinstance(answer, dict):
                    self.model = str(answer.get("model") or "")[:256]
                    self._complete(tokens_of(answer.get("usage")))
            return
        # Embeddings have megabytes of figures, and no text of a client.
        self._name_model(body[:1024])
        self._complete(last_usage(body))

    def _complete(self, tokens: Tokens | None) -> None:
        if tokens is not None and not self.recorded:
            self._record(tokens, "complete")

    def _events(self, body: bytes, more: bool) -> bytes:
        """Read the events of a stream, which may come in parts, and return what the client gets of them now."""
        if not self.text and self.streams_usage and body.find(_END) == len(body) - len(_END):
            # One event, whole: what vLLM sends for almost every token.
            return self._chunk(body)
        text = self.text + body
        end = text.rfind(_END) + len(_END) if more and _END in text else 0 if more else len(text)
        events, self.text = text[:end], text[end:]
        if self.streams_usage:
            return b"".join(self._chunk(event) for event in _split(events))
        for event in _split(events):
            self._event(event)
        return body

    def _chunk(self, event: bytes) -> bytes:
        """Read a chunk of the OpenAI API, and return what the client asked for.

        With hundreds of streams the API server is what limits vLLM, so this parses nothing that need not be.
        """
        at = event.rfind(_USAGE)
        if at < 0:
            return event
        stop = _end_of_usage(event, at)
        if stop == at:
            return event
        # All chunks of a stream begin alike; most are of the first choice.
        if event.startswith(_FIRST, self.choices_at):
            self.choices[0] = event
        elif not self._read_choices(event, event[at + len(_USAGE) - 1 : stop]):
            return event if self.asked_last else b""
        return event if self.asked_each else event[:at] + event[stop:]

    def _read_choices(self, event: bytes, usage: bytes) -> bool:
        """Remember the usage of a chunk that is not known to be of the first choice; return whether it has a choice."""
        if not self.model:
            self._name_model(event)
        at = event.find(_CHOICES)
        if event.startswith(_NO_CHOICES, at):
            self._complete(_parsed(usage) or Tokens())
            return False
        choice = _INDEX.match(event, at)
        self.choices[int(choice[1]) if choice else 0] = event
        self.choices_at = at
        return True

    def _event(self, event: bytes) -> None:
        """Read an event of the other APIs; they tell their usage to every client."""
        lines = event.split(b"\n")
        name = next((line[7:] for line in lines if line.startswith(b"event: ")), b"").decode("ascii", "replace")
        if name in ("message_start", "message_delta") or name in _LAST_EVENTS:
            with contextlib.suppress(ValueError, RecursionError, AttributeError):
                found = json.loads(b"".join(line[6:] for line in lines if line.startswith(b"data: ")))
                inner = found.get("message") or found.get("response") or {}
                self.model = self.model or str(inner.get("model") or "")[:256]
                tokens = tokens_of(inner.get("usage") or found.get("usage"))
                if name == "message_start":
                    self.start = tokens or self.start
                elif tokens:
                    self._complete(tokens)
        elif name.endswith("delta"):
            self.events += 1

    def _name_model(self, text: bytes) -> None:
        found = _MODEL.search(text)
        self.model = found[1].decode("utf-8", "replace") if found else self.model

    def _record(self, tokens: Tokens, state: str) -> None:
        self.recorded = True
        self.records.add(
            {
                "at": self.at + int(time.monotonic() - self.began), "gateway": self.gateway, "client": self.client,
                "team": self.team, "model": self.model, "state": state, **tokens._asdict(),
                **({"id": self.id} if self.id else {}),
            }
        )  # fmt: skip


def _end_of_usage(event: bytes, at: int) -> int:
    """Return where the usage that begins at ``at``, with its comma, ends in a chunk; ``at`` for one that is cut off."""
    start = at + len(_USAGE) - 1
    stop = event.find(b"}", start) + 1
    if not stop:
        return at
    if event.find(b"{", start + 1, stop) < 0:
        return stop
    # With details inside.
    text = event[start:].decode("utf-8", "surrogateescape")
    try:
        return len(event) - len(text[_DECODER.raw_decode(text)[1] :].encode("utf-8", "surrogateescape"))
    except ValueError:
        return at


def _usage_of(chunk: bytes) -> Tokens:
    """Return the tokens that a chunk tells."""
    at = chunk.rfind(_USAGE)
    return _parsed(chunk[at + len(_USAGE) - 1 : _end_of_usage(chunk, at)]) or Tokens()


def _parsed(usage: bytes) -> Tokens | None:
    with contextlib.suppress(ValueError, RecursionError):
        return tokens_of(json.loads(usage))
    return None


def _split(text: bytes) -> Iterator[bytes]:
    """Return the events of a text, each with the empty line that ends it."""
    at = 0
    while at < len(text):
        end = text.find(b"\n\n", at)
        end = len(text) if end < 0 else end + 2
        yield text[at:end]
        at = end
