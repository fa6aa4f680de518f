# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for vLLM that answers every route, including control routes.

The file /run/engine/stuck makes it hang, /run/engine/hold keeps its streams open.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STUCK, HOLD = Path("/run/engine/stuck"), Path("/run/engine/hold")


class Engine(BaseHTTPRequestHandler):
    """Answer with the requested path and the received key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer any route."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/metrics":
            self.answer('vllm:num_requests_running{engine="0"} 0.0\nvllm:generation_tokens_total{engine="0"} 1.0\n')
        elif self.path == "/health":
            self.answer("")
        elif b'"stream"' in body:
            self.stream()
        else:
            while STUCK.exists():
                time.sleep(0.2)
            self.answer(json.dumps({"path": self.path, "key": self.headers.get("Authorization"), "bytes": len(body)}))

    do_POST = do_GET  # noqa: N815

    def answer(self, text):
        """Send a text."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self):
        """Send ten tokens a second, at least a hundred, and until the file HOLD is removed."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        number = 0
        while number < 100 or HOLD.exists():
            number += 1
            piece = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(0.1)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_args):
        """Log nothing."""


ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Engine).serve_forever()
