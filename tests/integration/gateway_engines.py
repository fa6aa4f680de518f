# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands behind a gateway in tests: servers that answer everything, and the agent that watches them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.fakes.gateways import HANGS, program


class Engine(BaseHTTPRequestHandler):
    """Answers every route, as a vLLM with everything switched on would."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        length = int(self.headers.get("Content-Length") or 0)
        body = b""
        while len(body) < length:
            body += self.rfile.read(min(length - len(body), 1 << 20))
        if self.path == "/metrics":
            return self.send("".join(f'{name}{{engine="0"}} {value}\n' for name, value in server.metrics.items()))
        if self.path == "/health":
            # A number is the status itself.
            return self.send("", {True: 200, False: 503}.get(server.healthy, server.healthy))
        if server.broken in (True, self.path) and self.command == "POST" and b'"stream"' not in body:
            return self.send('{"error": "broken"}', 500)
        server.asked.append((self.command, self.path, dict(self.headers), len(body)))
        if user := re.search(rb'"user": "([^"]*)"', body):
            server.users.append(user.group(1).decode())
        if self.path == "/v1/completions" and server.stuck.is_set():
            server.freed.wait(600)
        if b'"stream"' in body:
            return self.stream()
        server.running.release()
        if b'"wait"' in body:
            server.freed.wait(600)
        return self.send(json.dumps({"path": self.path, "bytes": len(body)}))

    do_POST = do_GET  # noqa: N815

    def send(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(self.server.tokens):
            piece = b"data: %f %d\n\n" % (time.monotonic(), number)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self.server.freed.wait(self.server.pause):
                break
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_args):
        pass


@contextlib.contextmanager
def engine():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.daemon_threads = True
    server.users: list[str] = []
    server.asked, server.healthy, server.tokens, server.pause, server.broken = [], True, 10, 0.1, False
    server.metrics = {"vllm:num_requests_running": 0.0, "vllm:generation_tokens_total": 1.0}
    server.stuck, server.freed, server.running = threading.Event(), threading.Event(), threading.Semaphore(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.freed.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def agent(directory, port, servers, stuck_after=1.0, probe_after=0.0, interval=0.2, planned=None, **more):
    config = {
        "port": port, "interval": interval, "stuck_after": stuck_after, "probe_after": probe_after, "error_limit": 3,
        "min_available": 1, "stats": str(directory / "stats"), "unusable": str(directory / "unusable"),
        "stops": str(directory / "stops.json"),
        "servers": {
            f"127.0.0.1:{each}": {"name": f"gw--chat-{n}", "service": "chat", "model": "m", **more}
            for n, each in enumerate(servers, 1)
        } if planned is None else planned,
    }  # fmt: skip
    (directory / "agent.json").write_text(json.dumps(config))
    command, environ = program("gateway-agent", directory / "agent.json")
    process = subprocess.Popen(command, env=environ)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(HANGS)
