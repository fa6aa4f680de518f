# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the tokens of requests for which a gateway asks, and tell the gateways.

A gateway names itself, the client, the client's team, the request's id and the time on its clock in the header
``x-gateway-usage``, which clients cannot send through it. Without the header this module changes nothing. With it, each
answer gives one record, as JSON in a line of a file in the instance's cache; a record has no text of prompts or
answers. GET /gateway/usage returns the records that a gateway has not read, and waits for new ones. Gateways allow no
client that path. Who reaches the instance without a gateway cannot prove the header with a key of GATEWAY_SECRET, so
that nothing is counted for it, and no record returned.

What counts is what vLLM's engine returns to the API server, not what the answer says: every endpoint calls ``generate``
or ``encode`` of the engine's client, whatever the form of its answer, and whether or not the client waits for the end.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import re
import time
import urllib.parse
from typing import Any, AsyncGenerator, Callable, Iterator

from ..common.foreign_numbers import read_count
from ..usage.record import (
    HEADER,
    INSTANCE,
    PROOF_HEADER,
    PROOF_VARIABLE,
    RECORDS_PATH,
    SERVICE,
    Asked,
    Tokens,
    proof_of_answer,
    proven_by,
    record_of,
)
from ..usage.records_host import Records
from .asgi import App, Message, Receive, Scope, Send, send_answer, wrap_engine

# Seconds that a gateway may wait for a record, and between two looks at the files.
LONGEST_WAIT, LOOK = 5.0, 0.02
# What one request may have at the engine at a time, the choices of all its prompts: vLLM walks all of them at each
# output, which delays the others. The environment of the instance may set another number; OpenAI takes as many inputs.
MOST = int(os.environ.get("SEQUENCES_PER_REQUEST") or 2048)
# Characters and elements of the schema, grammar or choices that an answer has to follow: vLLM compiles them for all
# clients in few threads, and compiles on when the client has gone.
LONGEST_FORM = int(os.environ.get("SCHEMA_LENGTH_PER_REQUEST") or 128 * 1024)
# What vLLM appends to the id of a request to the engine that is a step of a beam. A client may choose what is before.
_BEAM = re.compile(r"-[0-9a-f]{16,32}-beam-[0-9]+\Z")


class Usage:
    """ASGI middleware that counts tokens for gateways; ``closed`` is a file that exists once the instance ends."""

    def __init__(self, app: App, directory: str, closed: str) -> None:
        self.app, self.closed = app, closed
        self.records = Records(directory)
        self.accepted = os.environ.get(PROOF_VARIABLE, "").split()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request to vLLM, and count it if a gateway asks for it."""
        named = next((value for name, value in scope.get("headers", ()) if name == HEADER), None)
        if scope["type"] == "http" and scope["path"] == RECORDS_PATH:
            return await self._tell(scope, send, named or b"")
        if (
            named is None
            or scope.get("method", "POST") != "POST"
            or not self._accepts(proven_by(named, self.accepted, SERVICE))
        ):
            return await self.app(scope, receive, send)
        answer = Answer(Asked.from_header(named), self.records, wrap_engine(scope, "counted", _counted), receive, send)
        present = _ANSWER.set(answer)
        try:
            await self.app(scope, answer.receive, answer.send)
        finally:
            _ANSWER.reset(present)
            answer.end()

    def _accepts(self, key: str) -> bool:
        """Return whether a header that a key proves is one of the gateways; without keys that of everybody counts."""
        return not self.accepted or bool(key)

    async def _tell(self, scope: Scope, send: Send, header: bytes) -> None:
        """Answer a gateway: records after the offsets in the query, as soon as there is one."""
        key = proven_by(header, self.accepted, INSTANCE)
        if not self._accepts(key):
            return await send_answer(send, 403, b"only gateways with the key of this instance may read this\n")
        query = urllib.parse.parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
        told = {name: read_count(value) for text in query.get("after", ()) for name, value in _pairs(text)}
        offsets = {name: offset for name, offset in told.items() if offset is not None}
        wait = query.get("wait", ["0"])[0]
        ends = time.monotonic() + min(LONGEST_WAIT, float(wait) if wait.isdecimal() else 0)
        body = self.records.read(offsets)
        # A stop of the instance waits for open answers.
        while not body and time.monotonic() < ends and not os.path.exists(self.closed):
            await asyncio.sleep(LOOK)
            body = self.records.read(offsets)
        proof = proof_of_answer(key, header, body).encode()
        return await send_answer(send, 200, body, b"application/jsonl", (PROOF_HEADER, proof))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split(","):
        name, _colon, value = pair.rpartition(":")
        yield name, value


class Part:
    """What the engine computed of one request to it; an answer may need several."""

    def __init__(self, name: str, params: Any, repeats: bool) -> None:
        # ``repeats``: its prompt is counted already.
        self.name, self.repeats = name, repeats
        # Of a pooling model's prompt there is one.
        self.choices: int = getattr(params, "n", None) or 1
        # Each output has what is new, or all so far.
        self.adds = getattr(getattr(params, "output_kind", None), "name", "") == "DELTA"
        self.prompt = self.cached = self.completion = 0
        # By the number of the choice: what outputs had, and what the engine had when the client left.
        self.generated: dict[int, int] = {}
        self.least: dict[int, int] = {}
        self.finished = False
        self.taken = Tokens()

    def saw(self, output: Any) -> None:
        """Count an output of the engine."""
        # Later outputs of a stream are without the prompt.
        if output.prompt_token_ids is not None and not self.repeats:
            self.prompt = max(self.prompt, len(output.prompt_token_ids))
            self.cached = max(self.cached, getattr(output, "num_cached_tokens", None) or 0)
        self.finished = output.finished
        # What a pooling model returns has no tokens.
        for choice in output.outputs if isinstance(output.outputs, list) else ():
            before = self.generated.get(choice.index, 0) if self.adds else 0
            self._note(self.generated, choice.index, before + len(choice.token_ids))

    def broken_off(self, state: Any, is_computed: bool) -> None:
        """Count what the engine has computed for a request; its prompt too if it ``is_computed``."""
        prompt = getattr(state, "prompt_embeds", None) if state.prompt_token_ids is None else state.prompt_token_ids
        if not self.repeats and prompt is not None and is_computed:
            self.prompt, self.cached = len(prompt), max(0, state.num_cached_tokens)
        # A pooling model generates nothing.
        if state.detokenizer is not None:
            self._note(self.least, state.request_index, len(state.detokenizer.output_token_ids))

    def _note(self, counts: dict[int, int], number: int, tokens: int) -> None:
        """Note how many tokens of a choice there are, by one of the two counts."""
        before = max(self.generated.get(number, 0), self.least.get(number, 0))
        counts[number] = tokens
        self.completion += max(self.generated.get(number, 0), self.least.get(number, 0)) - before

    def take_new(self) -> Tokens:
        """Return the tokens that have come since the last call."""
        before, self.taken = self.taken, Tokens(self.prompt, self.cached, self.completion)
        return Tokens(*(now - then for now, then in zip(self.taken, before)))


class Answer:
    """The answer to one request: passes it on, and records its tokens before the client has the end of it.

    A response in the background goes on after its answer; what it generates then has its own record.
    """

    def __init__(self, asked: Asked, records: Records, engine: Any, receive: Receive, send: Send) -> None:
        self.asked = asked
        # By the clock of the gateway, so that a wrong one here puts no tokens into another day.
        self.at = self.asked.at if self.asked.at >= 0 else int(time.time())
        self.began = time.monotonic()
        self.records, self.engine, self._receive, self._send = records, engine, receive, send
        self.model, self.status = "", 0
        self.gone = self.over = self.written = False
        # A client chooses how many parts there are: what is done for each of them must not walk all.
        self.parts: list[Part] = []
        self.changed: set[Part] = set()
        self.unfinished: set[Part] = set()
        self.beams: set[Any] = set()
        # The choices of all parts that have not ended.
        self.sequences = 0

    async def receive(self) -> Message:
        """Return what comes from the client."""
        message = await self._receive()
        if message["type"].endswith(".disconnect"):
            self.gone = True
            self._break_off()
        return message

    def _break_off(self) -> None:
        """Count what the engine has computed and no output has told: a client chooses how seldom outputs come."""
        states = dict(getattr(getattr(self.engine, "output_processor", None), "request_states", {}))
        scheduler = getattr(getattr(self.engine, "vllm_config", None), "scheduler_config", None)
        # Prompts are computed in the order in which they came, at least the first one where there is room for it.
        waiting = [state for state in states.values() if state.is_prefilling]
        has_room = len(states) - len(waiting) < getattr(scheduler, "max_num_seqs", float("inf"))
        first = waiting[0] if waiting and has_room else None
        parts: dict[str, list[Part]] = {}
        for part in self.parts:
            if not part.finished:
                parts.setdefault(part.name, []).append(part)
        for name, state in states.items():
            for each in dict.fromkeys((name, getattr(state, "external_req_id", None))):
                for part in parts.get(each, ()):
                    part.broken_off(state, state is first or not state.is_prefilling)
                    self.changed.add(part)

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self.end()
        await self._send(message)

    def part(self, name: str, params: Any) -> Part:
        """Return what counts a request to the engine, which begins now. Raises ValueError, which becomes a 400."""
        # Each step of a beam search is a request with the whole prompt. All steps of a search begin in one task.
        if not self.parts and _length_of_form(params) > LONGEST_FORM:
            raise ValueError(
                "The schema, grammar, tools or list of choices for the answer are too long: "
                f"together {LONGEST_FORM} characters and elements at most."
            )
        task = asyncio.current_task() if _BEAM.search(name) else None
        part = Part(name, params, task is not None and task in self.beams)
        if self.sequences + part.choices > MOST:
            raise ValueError(
                f"A request may have at most {MOST} prompts at a time, each of them n times, and this one has more; "
                "send several requests."
            )
        self.sequences += part.choices
        self.parts.append(part)
        self.beams.add(task)
        self.changed.add(self.parts[-1])
        return self.parts[-1]

    async def follow(self, outputs: AsyncGenerator[Any, None], part: Part) -> AsyncGenerator[Any, None]:
        """Return the outputs of the engine, and count them."""
        try:
            async for output in outputs:
                part.saw(output)
                self.changed.add(part)
                yield output
        finally:
            await outputs.aclose()
            self.sequences -= part.choices
            if self.over:
                self._record()

    def end(self) -> None:
        """Record the answer, once nothing more of it is sent."""
        if self.over:
            return
        self.over = True
        # Without a part the request was refused, needs no engine, or goes on in the background.
        if any(part.finished or part.prompt for part in self.parts) or (self.parts and self.gone):
            self._record()
        elif self.engine is None and 200 <= self.status < 300:
            self._write(Tokens(), "uncounted")

    def _record(self) -> None:
        """Record what no record has yet."""
        new = Tokens(*(sum(each) for each in zip(Tokens(), *(part.take_new() for part in self.changed))))
        self.unfinished |= self.changed
        self.unfinished -= {part for part in self.changed if part.finished}
        self.changed.clear()
        if any(new) or not self.written:
            self.written = True
            self._write(new, "aborted" if self.unfinished else "complete")

    def _write(self, tokens: Tokens, state: str) -> None:
        at = self.at + int(time.monotonic() - self.began)
        self.records.add(record_of(self.asked, at, self.model, state, tokens))


def _length_of_form(params: Any) -> int:
    """Return the length of what the answer has to follow; all prompts of a request share it."""
    wanted = getattr(params, "structured_outputs", None) or getattr(params, "guided_decoding", None)
    left = [getattr(wanted, name, None) for name in ("json", "regex", "choice", "grammar", "structural_tag")]
    length = 0
    while left and length <= LONGEST_FORM:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        if isinstance(value, (list, dict)):
            left.extend(value)
        length += len(value) if isinstance(value, (str, list, dict)) else 1
    return length


# The answer that the present task works for; tasks that vLLM starts for it inherit it.
_ANSWER: contextvars.ContextVar[Answer | None] = contextvars.ContextVar("answer", default=None)


def _counted(method: Callable[..., Any], state: Any) -> Callable[..., Any]:
    """Return a method of the engine's client that counts for the answer that calls it."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def counted(*words: Any, **named: Any) -> Any:
        answer = _ANSWER.get()
        if answer is None:
            return method(*words, **named)
        told = signature.bind(*words, **named).arguments
        answer.model = _model_of(state, told.get("lora_request"))
        part = answer.part(str(told.get("request_id")), told.get("sampling_params"))
        return answer.follow(method(*words, **named), part)

    return counted


def _model_of(state: Any, adapter: Any) -> str:
    """Return the name of a model as vLLM's answers have it."""
    if adapter is not None:
        return str(adapter.lora_name)[:256]
    bases = getattr(getattr(state, "openai_serving_models", None), "base_model_paths", None)
    return str(bases[0].name)[:256] if bases else ""
