# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for vLLM that answers every route, including control routes, behind the role's middleware for tokens.

The file /run/engine/stuck makes it hang, /run/engine/hold keeps its streams open. A prompt has ten tokens, an
answer as many as the request's max_tokens.
"""

from __future__ import annotations

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, "/usr/local/lib/vllm")
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.usage_host import Usage

RUN = Path("/run/engine")
STUCK, HOLD = RUN / "stuck", RUN / "hold"


class Client:
    """The calls of vLLM's engine that its endpoints make."""

    async def generate(self, prompt, sampling_params, request_id):
        """Yield the only output."""
        choice = SimpleNamespace(index=0, token_ids=[1] * sampling_params)
        yield SimpleNamespace(prompt_token_ids=[1] * 10, num_cached_tokens=0, outputs=[choice], finished=True)


MODEL = SimpleNamespace(name="")
STATE = SimpleNamespace(engine_client=Client(), openai_serving_models=SimpleNamespace(base_model_paths=[MODEL]))


async def engine(scope, receive, send):
    """Answer with the requested path and the received key."""
    body, path, headers = (await receive())["body"], scope["path"], dict(scope["headers"])
    if path == "/metrics":
        await answer(send, 'vllm:num_requests_running{engine="0"} 0.0\nvllm:generation_tokens_total{engine="0"} 1.0\n')
    elif path == "/health":
        await answer(send, "")
    elif b'"stream"' in body:
        await stream(send)
    else:
        while STUCK.exists():
            await asyncio.sleep(0.2)
        key = headers.get(b"authorization")
        found = {"path": path, "key": key and key.decode(), "bytes": len(body)}
        if b'"max_tokens"' in body:
            made, MODEL.name = json.loads(body)["max_tokens"], json.loads(body)["model"]
            async for _output in STATE.engine_client.generate(None, made, "cmpl-1"):
                pass
            usage = {"prompt_tokens": 10, "completion_tokens": made, "total_tokens": 10 + made}
            found.update(model=json.loads(body)["model"], usage=usage)
        await answer(send, json.dumps(found))


async def answer(send, text):
    """Send a text."""
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


async def stream(send):
    """Send ten tokens a second, at least a hundred, and until the file HOLD is removed."""
    headers = [(b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    number = 0
    while number < 100 or HOLD.exists():
        number += 1
        await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
        await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": b""})


# One number for each record, and one loop for each request: fewer records may come at the same time than with vLLM.
app = Usage(engine, str(RUN / "usage"), str(RUN / "closed"))


class Server(BaseHTTPRequestHandler):
    """Passes each request to the application, as vLLM's server does."""

    protocol_version = "HTTP/1.1"
    chunked = False

    def do_GET(self):
        """Answer any route."""
        asyncio.run(self.serve(self.rfile.read(int(self.headers.get("Content-Length") or 0))))

    do_POST = do_GET  # noqa: N815

    async def serve(self, body):
        """Run the application for one request."""
        path, _mark, query = self.path.partition("?")
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        scope = {"type": "http", "method": self.command, "path": path, "headers": headers}
        scope.update(query_string=query.encode(), app=SimpleNamespace(state=STATE))
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return messages.pop() if messages else {"type": "http.disconnect"}

        await app(scope, receive, self.send)

    async def send(self, message):
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.send_response(message["status"])
            for name, value in message["headers"]:
                self.send_header(name.decode(), value.decode())
                self.chunked = name == b"transfer-encoding"
            self.end_headers()
            return
        piece, more = message.get("body", b""), message.get("more_body", False)
        if not self.chunked:
            self.wfile.write(piece)
        elif piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if self.chunked and not more:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_args):
        """Log nothing."""


ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Server).serve_forever()
