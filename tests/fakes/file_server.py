# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HTTP server of files in memory that can be told to misbehave."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` (path -> bytes).

    faults: path -> what goes wrong: an int is an HTTP status; "cut" ends each answer after ``cut_after`` bytes; "stall"
    stops there and waits; "chunked" gives no length; a function gets the handler with the asked range's first byte and
    end, and returns whether it has answered. ranges: whether Range is honoured. headers: path -> what each answer for
    it has besides. log: (method, path, range) of each request, seen: its headers. signed: files are found whatever the
    query of their address is.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, int | str | Callable[[Handler, int, int], bool]] = {}
        self.cut_after = 1000
        self.ranges = True
        self.redirects: dict[str, str] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.log: list[tuple[str, str, str]] = []
        self.seen: list[dict[str, str]] = []
        self.released = threading.Event()
        self.scheme = "http"
        self.signed = False

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, *_args: object) -> None:
        """A client that hangs up is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        server, wanted = self.server, self.headers.get("Range", "")
        server.log.append((self.command, self.path, wanted))
        server.seen.append(dict(self.headers))
        fault = server.faults.get(self.path)
        if self.path in server.redirects:
            self.send_response(302)
            self.send_header("Location", server.redirects[self.path])
            self.end_headers()
            return
        path = self.path.partition("?")[0] if server.signed else self.path
        if isinstance(fault, int) or path not in server.files:
            self.send_error(fault if isinstance(fault, int) else 404)
            return
        content = server.files[path]
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted) if server.ranges else None
        start = int(match.group(1)) if match else 0
        end = min(int(match.group(2)) + 1, len(content)) if match and match.group(2) else len(content)
        if match and start >= len(content):
            self.send_error(416)
            return
        if callable(fault) and fault(self, start, end):
            return
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        if fault != "chunked":
            self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if body:
            self.send_body(content[start:end], fault)

    def end_headers(self) -> None:
        for name, value in self.server.headers.get(self.path, {}).items():
            self.send_header(name, value)
        super().end_headers()

    def send_body(self, content: bytes, fault: object) -> None:
        if fault not in ("cut", "stall"):
            self.wfile.write(content)
            return
        self.wfile.write(content[: self.server.cut_after])
        self.wfile.flush()
        if fault == "stall":
            self.server.released.wait(30)
        self.close_connection = True

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def serving(server: FileServer):
    """Run a server in a thread for the length of a with block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
