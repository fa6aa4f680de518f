# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that loads and unloads adapters as vLLM 0.32.0 does, behind the role's middleware with its guard.

The answers are those of vllm/entrypoints/openai/models/serving.py. A chat names the path of the adapter that it was
given when its body had arrived; until it is answered, the adapter may be unloaded.
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

from tests.fakes.stopping_engine import answer, body_of, middleware

BASE = "base"


class AdapterEngine:
    """``adapters``: the loaded ones, paths by name. ``broken``: paths that fail to load. ``asked``: what was changed.

    ``takes``: the seconds of a load; ``hangs``: it never answers a change; ``forgets``: it accepts a load and does
    nothing; ``key``: the API key; ``closed``: it has no endpoints for adapters.
    """

    def __init__(self, adapters=()):
        self.adapters, self.broken, self.asked = dict(adapters), {}, []
        self.takes, self.chat_takes, self.key = 0.0, 0.0, ""
        self.hangs = self.forgets = self.closed = False
        self.port, self.server = 0, None

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        path, headers = scope["path"], dict(scope["headers"])
        if self.key and headers.get(b"authorization") != f"Bearer {self.key}".encode():
            await error(send, 401, "Unauthorized")
        elif path == "/health":
            await answer(send, b"")
        elif path == "/v1/models":
            await answer(send, json.dumps({"object": "list", "data": self.cards()}).encode())
        elif path == "/v1/chat/completions":
            await self.chat(json.loads(await body_of(receive)), send)
        elif path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter") and not self.closed:
            await self.change(path, json.loads(await body_of(receive)), send)
        else:
            await answer(send, b'{"detail":"Not Found"}', 404)

    def cards(self):
        cards = [{"id": BASE, "object": "model", "root": "/srv/models/base", "parent": None, "max_model_len": 512}]
        return cards + [{"id": name, "root": path, "parent": BASE} for name, path in self.adapters.items()]

    async def chat(self, body, send):
        name = body["model"]
        if name != BASE and name not in self.adapters:
            await error(send, 404, f"The model `{name}` does not exist. Valid aliases: {BASE}.")
            return
        path = self.adapters.get(name, "")
        await asyncio.sleep(self.chat_takes)
        await answer(send, json.dumps({"adapter": path}).encode())

    async def change(self, path, body, send):
        name, where = body["lora_name"], body.get("lora_path")
        self.asked.append((path.rpartition("/")[2].partition("_")[0], name, where))
        if self.hangs:
            await asyncio.sleep(600)
        if path == "/v1/unload_lora_adapter":
            if self.adapters.pop(name, None) is None:
                await error(send, 404, f"The lora adapter '{name}' cannot be found.")
            else:
                await answer(send, f"Success: LoRA adapter '{name}' removed successfully.".encode())
            return
        if name in self.adapters:
            await error(send, 400, f"The lora adapter '{name}' has already been loaded.")
            return
        await asyncio.sleep(self.takes)
        if where in self.broken:
            await error(send, 500, self.broken[where])
            return
        if not self.forgets:
            self.adapters[name] = where
        await answer(send, f"Success: LoRA adapter '{name}' added successfully.".encode())


async def error(send, status, message):
    await answer(send, json.dumps({"error": {"message": message, "code": status}}).encode(), status)


@contextlib.contextmanager
def adapter_engine(run, adapters=(), guard=True, **tls):
    """Serve with the middleware for an instance whose directory is ``run``."""
    engine = AdapterEngine(adapters)
    run.mkdir(parents=True, exist_ok=True)
    before = os.environ.pop("OPERATOR_GUARD", None)
    if guard:
        os.environ["OPERATOR_GUARD"] = "1"
    try:
        app = middleware(run)(engine)
    finally:
        os.environ.pop("OPERATOR_GUARD", None)
        if before is not None:
            os.environ["OPERATOR_GUARD"] = before
    (run / "ready").touch()
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, **tls)
    engine.server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    engine.port = listener.getsockname()[1]
    thread = threading.Thread(target=engine.server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not engine.server.started:
        time.sleep(0.01)
    try:
        yield engine
    finally:
        engine.server.should_exit = engine.server.force_exit = True
        thread.join(10)
        listener.close()
