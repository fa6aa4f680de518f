#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What affinity is worth: conversations of many turns through a real HAProxy to four stand-ins, without a lab.

A stand-in keeps the blocks of the prompts that it has read, as vLLM does, and reads one prompt at a time, each block
that it lacks in a fixed time. Each line is a value of gateway_services.NAME.affinity, with a bound of a server's share.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / ".collections")]

from tests.fakes.gateways import KEY, gateway, plan

SERVERS, TURNS = 4, 8
# Words of a block, of the system prompt, of a user's message, of an answer.
BLOCK, SYSTEM, USER, ANSWER = 16, 256, 64, 64
# Seconds for a block that is read, for an answer; blocks that a server keeps: a third of all.
READ, WRITE = 0.002, 0.15


class Replica(BaseHTTPRequestHandler):
    """Answers with the seconds until the first token."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        # A health check closes without reading the answer.
        with contextlib.suppress(ConnectionError):
            self.send(b"ok")

    def do_POST(self) -> None:
        began, server = time.perf_counter(), self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = " ".join(message["content"] for message in body["messages"]).split()
        ends = range(BLOCK, len(words) + 1, BLOCK)
        with server.reading:
            missing = sum(not server.has(hash(tuple(words[:end]))) for end in ends)
            time.sleep(missing * READ)
        first = time.perf_counter() - began
        server.asked += 1
        server.read += len(ends)
        server.hit += len(ends) - missing
        time.sleep(WRITE)
        self.send(json.dumps(first).encode())

    def send(self, text: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_words: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A stand-in with its cache."""

    daemon_threads, request_queue_size = True, 256

    def __init__(self, conversations: int) -> None:
        super().__init__(("127.0.0.1", 0), Replica)
        self.kept = conversations * TURNS * (USER + ANSWER) // BLOCK // 3
        self.reading, self.blocks = threading.Lock(), OrderedDict()
        self.asked = self.read = self.hit = 0

    def has(self, block: int) -> bool:
        """Return whether a block is here, and keep it."""
        found = block in self.blocks
        self.blocks[block] = True
        self.blocks.move_to_end(block)
        if len(self.blocks) > self.kept:
            self.blocks.popitem(last=False)
        return found


@contextlib.contextmanager
def servers(conversations: int) -> Iterator[list[Server]]:
    found = [Server(conversations) for _number in range(SERVERS)]
    for each in found:
        threading.Thread(target=each.serve_forever, daemon=True).start()
    yield found
    for each in found:
        each.shutdown()


def turns(number: int) -> Iterator[bytes]:
    """Return the requests of a conversation."""
    chance = random.Random(number)
    messages = [{"role": "system", "content": "be kind " * (SYSTEM // 2)}]
    for _turn in range(TURNS):
        messages.append({"role": "user", "content": " ".join(str(chance.random()) for _word in range(USER))})
        yield json.dumps({"messages": messages}).encode()
        messages.append({"role": "assistant", "content": " ".join(str(chance.random()) for _word in range(ANSWER))})


def converse(found: object, waiting: list[Iterator[bytes]], chance: random.Random) -> list[float]:
    """Ask one turn of a conversation after the other; return the seconds until the first token of each.

    People think between two turns: the next turn is that of a conversation that has waited.
    """
    took = []
    while waiting:
        one = waiting.pop(chance.randrange(len(waiting)))
        body = next(one, None)
        if body:
            status, _headers, text = found.ask("POST", "/v1/chat/completions", KEY, body)
            assert status == 200, text
            took.append(json.loads(text))
            waiting.append(one)
    return took


def measure(conversations: int, at_once: int, affinity: str, bound: int) -> None:
    plans_of = {"services": {"chat": {"affinity": affinity}}}
    with servers(conversations) as found:
        plans = {f"chat-{n}": plan(each.server_port) for n, each in enumerate(found)}
        more = {"variables": {"__gateway_most_of_share": bound}, "options": plans_of, "plans": plans}
        with gateway(Path(tempfile.mkdtemp()), [], **more) as front:
            began = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                waiting, chance = [turns(number) for number in range(conversations)], random.Random(1)
                parts = [pool.submit(converse, front, waiting, chance) for _worker in range(at_once)]
                took = [each for part in parts for each in part.result()]
            seconds = time.perf_counter() - began
        asked = [each.asked for each in found]
        hits = sum(each.hit for each in found) / sum(each.read for each in found)
    print(
        f"{affinity:8} bound {bound}  hits {hits:.3f}  requests max/mean {max(asked) * SERVERS / sum(asked):.2f}  "
        f"first token {statistics.median(took) * 1000:5.0f} ms at the median, "
        f"{statistics.quantiles(took, n=100)[94] * 1000:5.0f} at p95  {seconds:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, default=32, help="conversations at the same time (default 32)")
    parser.add_argument("--conversations", type=int, default=160, help="conversations in all (default 160)")
    options = parser.parse_args()
    for affinity, bound in (("none", 0), ("prefix", 125), ("prefix", 150), ("prefix", 200)):
        measure(options.conversations, options.at_once, affinity, bound)


if __name__ == "__main__":
    main()
