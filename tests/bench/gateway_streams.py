#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gateway costs 64 and 512 streams at the same time, against the engine asked directly, and without a lab.

The engine is a stand-in that makes the tokens of each stream at a fixed pace, as a busy accelerator does: what arrives
later than that is lost throughput. Both ways by turns, with counted tokens and a key. The first figure is that of
single requests, also by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / ".collections")]

from tests.fakes.gateways import KEY, free_port, gateway, until

ADDED_MS, LOST_PERCENT = 2.0, 2.0
WAYS = ("direct", "gateway")
# Of each stream: its tokens, and the seconds for one.
TOKENS, PAUSE = 100, 0.1
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "word " * 200}]}
CHUNK = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"data: [DONE]\n\n"


def chunked(text: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text), text)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests with as many tokens as they ask for, each at its time."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
            body = await reader.readexactly(int(fields.get(b"content-length", 0)))
            if not head.startswith(b"post"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                continue
            writer.write(HEAD)
            began, tokens = time.monotonic(), json.loads(body)["max_tokens"]
            for number in range(tokens):
                await asyncio.sleep(max(0.0, began + number * PAUSE - time.monotonic()))
                writer.write(chunked(CHUNK))
                await writer.drain()
            writer.write(chunked(LAST) + b"0\r\n\r\n")


async def engine(port: int) -> None:
    """Serve until the process ends."""
    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


async def stream(port: int, tokens: int) -> float:
    """Return the seconds until the first token of an answer that is read to its end."""
    began, first, found = time.perf_counter(), 0.0, b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({**BODY, "max_tokens": tokens}).encode()
    lines = (b"POST /v1/chat/completions HTTP/1.1", b"Host: x", b"Authorization: Bearer " + KEY.encode())
    writer.write(b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]) + body)
    made = 0
    while not found.endswith(b"\r\n0\r\n\r\n"):
        part = await reader.read(65536)
        assert part, found[-300:]
        made += part.count(b'"delta"')
        if made and not first:
            first = time.perf_counter() - began
        found = (found + part)[-2000:]
    writer.close()
    assert LAST in found, found
    return first


async def single(ports: dict[str, int], number: int) -> None:
    """Print the median time to the first token by each way."""
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(number):
        for way in WAYS if turn % 2 else reversed(WAYS):
            took[way].append(await stream(ports[way], 1))
    medians = "  ".join(f"{way} {statistics.median(values) * 1000:6.2f} ms" for way, values in took.items())
    added = statistics.median(after - before for before, after in zip(took["direct"], took["gateway"])) * 1000
    print(f"{'First token, one request at a time':36} {medians}  added {added:5.2f} ms (goal at most {ADDED_MS:g})")


async def many(ports: dict[str, int], number: int, rounds: int) -> None:
    """Print the tokens per second of so many streams by each way."""
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    firsts: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds):
        for way in WAYS if turn % 2 else reversed(WAYS):
            began = time.perf_counter()
            firsts[way] += await asyncio.gather(*(stream(ports[way], TOKENS) for _number in range(number)))
            rates[way].append(number * TOKENS / (time.perf_counter() - began))
    medians = {way: statistics.median(values) for way, values in rates.items()}
    lost = (1 - statistics.median(after / before for before, after in zip(rates["direct"], rates["gateway"]))) * 100
    first = {way: statistics.median(values) * 1000 for way, values in firsts.items()}
    print(
        f"{f'Tokens, {number} streams, {rounds} rounds':36} direct {medians['direct']:8.1f}/s  gateway "
        f"{medians['gateway']:8.1f}/s  lost {lost:4.1f} % (goal at most {LOST_PERCENT:g})  first token of all at once: "
        f"direct {first['direct']:.0f} ms, gateway {first['gateway']:.0f} ms"
    )


def main() -> None:
    if sys.argv[1:2] == ["--engine"]:
        asyncio.run(engine(int(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each number of streams (default 4)")
    parser.add_argument("--streams", type=int, nargs="+", default=(64, 512), help="at the same time (default 64 512)")
    parser.add_argument("--single", type=int, default=300, help="single requests by each way (default 300)")
    options, port = parser.parse_args(), free_port()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    process = subprocess.Popen([sys.executable, __file__, "--engine", str(port)])
    try:
        with gateway(Path(tempfile.mkdtemp()), [port], options={"tokens": True}) as found:
            until(lambda: found.state("gw--chat-1") == "UP")
            ports = {"direct": port, "gateway": found.port}
            asyncio.run(single(ports, options.single))
            for number in options.streams:
                asyncio.run(many(ports, number, options.rounds))
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
