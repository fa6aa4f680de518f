# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for an instance of vLLM behind the middleware of the role vllm: it says in its metrics that it is sick.

    engine.py NAME PORT

A stream lasts three seconds. It counts requests that run, and tokens, as vLLM does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RUN = Path("/run/vllm") / sys.argv[1]
LOCK = threading.Lock()
COUNTS = {"running": 0, "tokens": 0}


class Engine(BaseHTTPRequestHandler):
    """Answer as vLLM does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer health, metrics and models."""
        if self.path == "/metrics":
            self.answer(
                f"vllm:num_requests_running {COUNTS['running']}\nvllm:generation_tokens_total {COUNTS['tokens']}\n"
            )
        elif self.path == "/v1/models":
            self.answer(json.dumps({"data": [{"id": "openai/gpt-oss-20b"}]}))
        else:
            self.answer("")

    def do_POST(self):
        """Stream thirty tokens, or give one."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        with LOCK:
            COUNTS["running"] += 1
        try:
            self.stream() if body.get("stream") else self.answer(json.dumps({"served_by": sys.argv[1]}))
        finally:
            with LOCK:
                COUNTS["running"] -= 1
                COUNTS["tokens"] += 1

    def answer(self, text):
        """Send a text."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        if self.path == "/metrics" and (RUN / "unhealthy").exists():
            self.send_header("unhealthy", (RUN / "unhealthy").read_text())
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self):
        """Send ten tokens a second, with the name of this instance."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _token in range(30):
            with LOCK:
                COUNTS["tokens"] += 1
            piece = f"data: {sys.argv[1]}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(0.1)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_args):
        """Log nothing."""


ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Engine).serve_forever()
