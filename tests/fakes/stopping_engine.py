# SPDX-License-Identifier: GPL-3.0-or-later
"""A server like vLLM's: the same HTTP server, the role's middleware, and what vLLM does after SIGTERM.

Its port is its own (no SO_REUSEPORT). Once ``stopped`` is set it still listens, answers /health with 200, and gives no
other answer, as vLLM 0.32.0 does while it waits for its engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time

import uvicorn
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import availability_host

TOKENS = 10


def middleware(run):
    """Return the role's class for an instance whose directory is ``run``."""
    os.environ["AVAILABILITY_DIRECTORY"] = str(run)
    availability_host.CACHE_DIR = str(run.parent)
    return availability_host.Availability


class StoppingEngine:
    """Answers /health, /metrics, /slow, /v1/models and /v1/completions, and all else with a stream of ten events.

    A completion takes ``compiles`` seconds more when as many at once have not been seen before, as where kernels are
    compiled for each size of batch.
    """

    def __init__(self):
        self.running, self.waiting, self.takes, self.pause = 0, 0, 1.0, 0.1
        self.metrics, self.stopped = True, False
        self.compiles, self.most, self.completions = 0.0, 0, []
        self.asked, self.late = [], []
        self.server, self.port, self.thread = None, 0, None

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path == "/health":
            await answer(send, b"")
        elif path == "/metrics":
            names = ("running", "waiting") if self.metrics else ()
            line = 'vllm:num_requests_%s{engine="0",model_name="a {b}"} %.1f\n'
            text = "# HELP x y\n" + "".join(line % (name, getattr(self, name)) for name in names)
            text += "vllm:prompt_tokens_total 7.0\nvllm:generation_tokens_total 3.0\n" if self.metrics else ""
            await answer(send, text.encode())
        elif path == "/v1/models":
            await answer(send, b'{"data": [{"id": "lab/model"}]}')
        elif path == "/v1/completions":
            await self.complete(receive, send)
        elif self.stopped:
            self.late.append(path)
            await body_of(receive)
            await asyncio.sleep(600)
        else:
            self.asked.append(path)
            self.running += 1
            try:
                await (self.slow(send) if path == "/slow" else stream(send, self.pause))
            finally:
                self.running -= 1

    async def complete(self, receive, send):
        body = await body_of(receive)
        self.running += 1
        if self.running > self.most:
            self.most = self.running
            await asyncio.sleep(self.compiles)
        await asyncio.sleep(0.05)
        self.running -= 1
        self.completions.append(json.loads(body))
        await answer(send, b'{"choices": []}')

    async def slow(self, send):
        await asyncio.sleep(self.takes)
        await answer(send, b"ok")


async def body_of(receive):
    body = b""
    while (part := await receive())["type"] == "http.request":
        body += part["body"]
        if not part.get("more_body"):
            break
    return body


async def answer(send, body, status=200):
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def stream(send, pause):
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(TOKENS):
        await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
        await asyncio.sleep(pause)
    await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def stopping_engine(run=None, host="127.0.0.1", ready=True, **tls):
    """Serve on a free port of ``host``, with the middleware if ``run`` is the instance's directory."""
    engine = StoppingEngine()
    app = middleware(run)(engine) if run else engine
    if run and ready and run.is_dir():
        (run / "ready").touch()
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, **tls)
    engine.server = uvicorn.Server(config)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.bind((host, 0))
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
