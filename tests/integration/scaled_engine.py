# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine that can be started and stopped, as systemd and vLLM do: it has places, and a start takes a second."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

START, ANSWER = 1.0, 0.5


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        engine: ScaledEngine = self.server.engine  # type: ignore[attr-defined]
        if self.path == "/metrics":
            waiting = max(0, engine.open - engine.places)
            found = {"running": engine.open - waiting, "waiting": waiting}
            self.say("".join(f'vllm:num_requests_{name}{{engine="0"}} {value}\n' for name, value in found.items()))
        else:
            self.say("", 404 if engine.state == "deactivating" else 200)

    def do_POST(self) -> None:
        engine: ScaledEngine = self.server.engine  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers["Content-Length"]))
        with engine.lock:
            engine.open += 1
        with engine.room:
            time.sleep(ANSWER)
        with engine.lock:
            engine.open -= 1
            engine.answered += 1
        self.say(json.dumps({"choices": []}))

    def say(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(text.encode())

    def log_message(self, *_args: Any) -> None:
        pass


class ScaledEngine:
    """A replica at a port."""

    def __init__(self, port: int, places: int) -> None:
        self.port, self.places = port, places
        self.room, self.lock = threading.Semaphore(places), threading.Lock()
        self.open = self.answered = 0
        self.state, self.since = "inactive", 0.0
        self.server: Any = None

    def start(self) -> None:
        self.state = "activating"
        time.sleep(START)
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), _Handler)
        self.server.engine, self.server.daemon_threads = self, True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.state, self.since = "active", time.monotonic()

    def stop(self) -> None:
        """End as the unit does: gateways notice first, then the running requests are answered."""
        self.state = "deactivating"
        time.sleep(3)
        while self.open:
            time.sleep(0.05)
        self.kill()

    def kill(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server, self.state = None, "inactive"

    def unit(self) -> dict[str, str]:
        """Return what systemd shows."""
        sub = {"active": "running", "activating": "start"}.get(self.state, "dead")
        return {"ActiveState": self.state, "SubState": sub, "ActiveEnterTimestampMonotonic": str(int(self.since * 1e6))}
