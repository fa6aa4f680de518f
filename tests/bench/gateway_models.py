#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs that the gateway searches the model in the body of a request, on this machine and without a lab.

Three ways by turns, each over a kept connection: directly to a server that answers at once, through the address of a
service, where the gateway does not look at the body, and through the common address, where it does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / ".collections")]

from tests.fakes.gateways import KEY, gateway, plan

WAYS = ("direct", "service", "model")
PATHS = {"service": "/quick/v1/chat/completions"}
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
# The last text is the worst case: an escaped quote costs most.
TEXTS = {"prose": "lorem ipsum dolor sit amet ", "code": 'print("lorem ipsum")\n', "numbers": None, "quotes": '"'}


def read_message(connection: socket.socket) -> bool:
    """Read one message; return False at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1 << 20)
        if not piece:
            return False
        data += piece
    head, _blank, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length:" in line), 0)
    missing = length - len(body)
    while missing > 0:
        missing -= len(connection.recv(1 << 20))
    return True


def serve(listener: socket.socket) -> None:
    """Answer every request at once, in one piece."""

    def work(connection: socket.socket) -> None:
        # A health check closes without reading the answer.
        with connection, contextlib.suppress(ConnectionResetError):
            while read_message(connection):
                connection.sendall(ANSWER)

    while True:
        threading.Thread(target=work, args=(listener.accept()[0],), daemon=True).start()


def body_of(kind: str, size: int) -> bytes:
    """Return a chat of about ``size`` bytes whose model comes last, as the OpenAI client writes it."""
    if kind == "numbers":
        return json.dumps({"prompt": list(range(100, 100 + size // 5)), "model": "quick"}).encode()
    text = TEXTS[kind]
    repeated = text * (size // len(json.dumps(text)[1:-1]))
    return json.dumps({"messages": [{"role": "user", "content": repeated}], "model": "quick"}).encode()


def main() -> None:
    """Print a line for each kind of body and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=300, help="requests by each way (default 300)")
    turns = parser.parse_args().turns
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    port = listener.getsockname()[1]
    plans = {name: plan(port, of=name, models=[name]) for name in ("chat", "quick")}
    with gateway(Path(tempfile.mkdtemp()), [], plans=plans) as found:
        connections = {
            way: socket.create_connection(("127.0.0.1", port if way == "direct" else found.port)) for way in WAYS
        }
        for connection in connections.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for kind in TEXTS:
            for size in (500, 16_000, 62_000, 250_000):
                show(kind, body_of(kind, size), connections, turns)


def show(kind: str, body: bytes, connections: dict[str, socket.socket], turns: int) -> None:
    """Print the median of each way in milliseconds, and the median of the differences of neighbours."""
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(turns):
        for way in WAYS if turn % 2 else reversed(WAYS):
            path = PATHS.get(way, "/v1/chat/completions")
            lines = [
                f"POST {path} HTTP/1.1",
                "Host: gw",
                f"Authorization: Bearer {KEY}",
                f"Content-Length: {len(body)}",
            ]
            message = "\r\n".join([*lines, "", ""]).encode() + body
            began = time.perf_counter()
            connections[way].sendall(message)
            assert read_message(connections[way])
            took[way].append((time.perf_counter() - began) * 1000)
    medians = "  ".join(f"{way} {statistics.median(values):6.2f} ms" for way, values in took.items())
    added = statistics.median(after - before for before, after in zip(took["service"], took["model"]))
    print(f"{kind:8} {len(body):7} bytes  {medians}  the search adds {added:5.2f} ms")


if __name__ == "__main__":
    main()
