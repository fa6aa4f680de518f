# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that answers as vLLM 0.32.0 does, and counts tokens as vLLM's own counters do, behind the role's middleware.

The prompt has as many tokens as the body has of the word "word"; ``max_tokens`` are generated, one for each chunk. As
in vLLM, endpoints have a client of the engine generate.

As a program (RUN PORT) it is an instance of its own that a test may kill, and writes a line of JSON for each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import json
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import uvicorn

from tests.fakes.stopping_engine import answer, middleware

FALSE = (None, False, 0, "false")
# Of the request that runs: what it generated, and whether that is all.
OWN = contextvars.ContextVar("own")
# Ids of requests to the engine.
NUMBERS = itertools.count()


class EngineClient:
    """The calls of vLLM's AsyncLLM that its endpoints make."""

    def __init__(self, counts):
        self.counts, self.output_processor = counts, SimpleNamespace(request_states={})

    async def generate(self, prompt, sampling_params, request_id, *, lora_request=None):
        count, tokens, cached = self.counts, prompt["prompt_token_ids"], prompt.get("cached", 0)
        count.prompt += len(tokens)
        choices, made = range(sampling_params.n), []
        is_stream = sampling_params.output_kind.name == "DELTA"
        for number in choices:
            state = SimpleNamespace(
                prompt_token_ids=tokens, num_cached_tokens=cached, is_prefilling=True, request_index=number,
                external_req_id=request_id, detokenizer=SimpleNamespace(output_token_ids=[]),
            )  # fmt: skip
            self.output_processor.request_states[f"{request_id}-{number}"] = state
            made.append(state)
        try:
            for last in range(sampling_params.max_tokens):
                for number, state in enumerate(made):
                    await count.token()
                    state.is_prefilling = False
                    state.detokenizer.output_token_ids.append(1)
                    finished = last + 1 == sampling_params.max_tokens and number + 1 == len(made)
                    OWN.get()["done"] = finished
                    if is_stream:
                        yield output(tokens if not last else None, cached, {number: [1]}, finished)
            if not is_stream:
                yield output(tokens, cached, {n: each.detokenizer.output_token_ids for n, each in enumerate(made)})
        finally:
            for number in choices:
                del self.output_processor.request_states[f"{request_id}-{number}"]

    async def encode(self, prompt, pooling_params, request_id, lora_request=None):
        self.counts.prompt += len(prompt["prompt_token_ids"])
        yield SimpleNamespace(
            prompt_token_ids=prompt["prompt_token_ids"], num_cached_tokens=0, outputs=object(), finished=True
        )


def output(prompt, cached, choices, finished=True):
    """Return an output of the engine; those of a stream have the prompt only once."""
    outputs = [SimpleNamespace(index=number, token_ids=tokens) for number, tokens in choices.items()]
    return SimpleNamespace(prompt_token_ids=prompt, num_cached_tokens=cached, outputs=outputs, finished=finished)


def params(tokens, stream, n=1):
    return SimpleNamespace(
        max_tokens=tokens, n=n, output_kind=SimpleNamespace(name="DELTA" if stream else "FINAL_ONLY")
    )


class CountedEngine:
    """``prompt`` and ``generated`` are what vLLM's counters would say; ``pause`` is the time for a token in seconds."""

    def __init__(self):
        self.prompt, self.generated, self.requests, self.pause = 0, 0, [], 0.0
        models = SimpleNamespace(base_model_paths=[SimpleNamespace(name="m")])
        self.state = SimpleNamespace(engine_client=EngineClient(self), openai_serving_models=models)
        self.server, self.port, self.thread = None, 0, None
        # Gets what each request was, in place of ``requests``.
        self.ledger = None

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return None
        path, body = scope["path"], b""
        if path in ("/health", "/metrics"):
            return await answer(send, b'vllm:num_requests_running{engine="0"} 0.0\n')
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        length = dict(scope["headers"]).get(b"content-length")
        if length is not None and int(length) != len(body):
            return await answer(send, b"wrong length", 400)
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            return await answer(send, b'{"error":{"message":"no JSON"}}', 400)
        headers = dict(scope["headers"])
        own = {"client": headers.get(b"x-gateway-usage", b"- -").split()[1].decode(), "made": 0, "done": False}
        own["pause"] = request.get("pause", self.pause)
        OWN.set(own)
        if self.ledger is None:
            self.requests.append((path, request, headers))
        gone = asyncio.Event()
        listener = asyncio.ensure_future(watch(receive, gone))
        try:
            return await self.serve(path, request, send, gone)
        finally:
            listener.cancel()
            if self.ledger:
                self.ledger({**own, "prompt": json.dumps(request).count("word"), "intruder": b"intruder" in body})

    async def serve(self, path, request, send, gone):
        prompt = json.dumps(request).count("word")
        cached, wanted = prompt // 2, request.get("max_tokens", request.get("max_output_tokens", 3))
        if request.get("model") == "unknown":
            return await answer(send, b'{"error":{"message":"unknown"}}', 404)
        head = {"id": "x", "object": "o", "created": 1, "model": request.get("model", "m")}
        client, engine_prompt = self.state.engine_client, {"prompt_token_ids": [1] * prompt, "cached": cached}
        if path in ("/v1/embeddings", "/pooling", "/score"):
            async for _output in client.encode(engine_prompt, None, f"embd-{next(NUMBERS)}"):
                pass
            usage = {"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0}
            # Without a usage, as in the form of only bytes.
            found = b"\0\0" if "encoding_format" in request else dumped({**head, "data": [[0.5] * 9], "usage": usage})
            return await answer(send, found)
        stream = request.get("stream") not in FALSE
        outputs = client.generate(engine_prompt, params(wanted, stream, request.get("n", 1)), f"cmpl-{next(NUMBERS)}")
        try:
            return await self.generate(path, request, send, gone, outputs, head, (prompt, cached, wanted))
        finally:
            await outputs.aclose()

    async def generate(self, path, request, send, gone, outputs, head, tokens):
        if request.get("stream") in FALSE:
            ended = asyncio.ensure_future(outputs.__anext__())
            left = asyncio.ensure_future(gone.wait())
            await asyncio.wait([ended, left], return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                ended.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await ended
                return None
            left.cancel()
            async for _rest in outputs:
                pass
            await answer(send, dumped({**head, "choices": [], "usage": self.usage(path, *tokens)}))
            return None
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream; x")]}
        )
        events = {"/v1/responses": self.responses, "/v1/messages": self.messages}.get(path, self.chunks)
        async for event in events(request, head, outputs, *tokens):
            if gone.is_set():
                return None
            await send({"type": "http.response.body", "body": event, "more_body": True})
        return await send({"type": "http.response.body", "body": b""})

    def usage(self, path, prompt, cached, made):
        if path == "/v1/messages":
            return {"output_tokens": made, "cache_read_input_tokens": cached, "input_tokens": prompt - cached}
        if path == "/v1/responses":
            return {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": made}
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made, **details}

    async def token(self):
        own = OWN.get()
        await asyncio.sleep(own["pause"])
        self.generated += 1
        own["made"] += 1

    async def chunks(self, request, head, outputs, prompt, cached, wanted):
        options = request.get("stream_options") or {}
        last, choices = options.get("include_usage"), request.get("n", 1)
        each = last and options.get("continuous_usage_stats")

        def chunk(number, made, text):
            usage = {"usage": {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}}
            body = {**head, "choices": [{"index": number, "delta": {"content": text}}], **(usage if each else {})}
            return b"data: " + dumped(body) + b"\n\n"

        yield chunk(0, 0, "")
        made = 0
        async for each in outputs:
            number = each.outputs[0].index
            made += number == 0
            yield chunk(number, made, f'made "usage":{{"x":{made}}}')
        if last:
            usage = self.usage("", prompt, cached, wanted * choices)
            yield b"data: " + dumped({**head, "choices": [], "usage": usage}) + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def responses(self, request, head, outputs, prompt, cached, wanted):
        async for _output in outputs:
            yield b'event: response.output_text.delta\ndata: {"delta":"x"}\n\n'
        response = {**head, "tools": request.get("tools"), "usage": self.usage("/v1/responses", prompt, cached, wanted)}
        yield b"event: response.completed\ndata: " + dumped({"type": "x", "response": response}) + b"\n\n"

    async def messages(self, _request, head, outputs, prompt, cached, wanted):
        start = {**head, "usage": {"input_tokens": prompt, "output_tokens": 0}}
        yield b"event: message_start\ndata: " + dumped({"type": "message_start", "message": start}) + b"\n\n"
        async for _output in outputs:
            yield b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
        usage = self.usage("/v1/messages", prompt, cached, wanted)
        yield b"event: message_delta\ndata: " + dumped({"type": "message_delta", "usage": usage}) + b"\n\n"
        yield b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


async def watch(receive, gone):
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def dumped(value):
    return json.dumps(value, separators=(",", ":")).encode()


@contextlib.contextmanager
def counted_engine(run, port=0, counts=True, ledger=None, engine=None, wrap=None):
    """Serve with the middleware for an instance whose directory is ``run``, and with the class ``wrap`` before it."""
    engine = engine or CountedEngine()
    engine.ledger = ledger
    run.mkdir(parents=True, exist_ok=True)
    role = middleware(run)(engine) if counts else engine
    engine.wrapped = outer = wrap(role) if wrap else role

    async def app(scope, receive, send):
        # As Starlette does.
        await outer({**scope, "app": engine}, receive, send)

    (run / "ready").touch()
    engine.role = role
    engine.server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    engine.port = listener.getsockname()[1]
    engine.thread = threading.Thread(target=engine.server.run, kwargs={"sockets": [listener]}, daemon=True)
    engine.thread.start()
    while not engine.server.started:
        time.sleep(0.01)
    try:
        yield engine
    finally:
        engine.server.should_exit = engine.server.force_exit = True
        engine.thread.join(10)
        listener.close()


if __name__ == "__main__":
    with counted_engine(Path(sys.argv[1]), int(sys.argv[2]), ledger=lambda entry: print(json.dumps(entry), flush=True)):
        threading.Event().wait()
