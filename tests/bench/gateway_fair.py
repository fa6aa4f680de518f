#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What classes and turns are worth under overload: a real HAProxy in front of stand-in engines, without a lab.

A stand-in has places, and a queue of its own, first come first served. It answers a request with a stream: the first
token after 1 s, the last one about 3 s later. Each line is a trace, at twice what the engines can do. The first
seconds, in which the engines fill, are left out of the times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / ".collections")]

from tests.fakes.gateways import RunningGateway, client, free_port, gateway, plan, until
from tests.hostile.http2 import Http2
from tests.integration.gateway_engines import agent

CHAT = "/v1/chat/completions"
FIRST, REST, TOKENS = 1.0, 3.0, 12
# Mean seconds of a request, and seconds after which the engines are full.
SECONDS, FILLS = FIRST + REST, 10.0
# What --judge expects: the last percent of gold and of a quiet team as a multiple of what it is without others, and the
# answers as a part of those without admission.
GOLD, QUIET, ANSWERS = 1.5, 2.0, 0.97
TEAMS = {"product": {"class": "gold"}, "quiet": {}, "noisy": {}, "nightly": {"class": "batch"}}


class Engine:
    """An engine with so many places, and a queue of its own."""

    def __init__(self, places: int) -> None:
        self.places, self.there, self.tokens = places, 0, 0
        self.free = asyncio.Semaphore(places)

    def metrics(self) -> bytes:
        running = min(self.there, self.places)
        counts = {"num_requests_running": running, "num_requests_waiting": self.there - running}
        counts["generation_tokens_total"] = self.tokens
        return "".join(f"vllm:{name} {value}\n" for name, value in counts.items()).encode()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Engine) -> None:
    """Answer one connection as an engine does."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"get"):
            text = engine.metrics()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(text) + text)
        else:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            await reader.readexactly(length)
            engine.there += 1
            try:
                async with engine.free:
                    await _stream(writer)
            finally:
                engine.there -= 1
                engine.tokens += TOKENS
        await writer.drain()
    writer.close()


async def _stream(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(FIRST)
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
    pause = REST / TOKENS * random.uniform(0.6, 1.4)
    for _n in range(TOKENS):
        writer.write(b"6\r\ndata: \r\n")
        await writer.drain()
        await asyncio.sleep(pause)
    writer.write(b"0\r\n\r\n")


def _engines(ports: list[int], places: int) -> None:
    async def serve() -> None:
        for port in ports:
            own = Engine(places)
            await asyncio.start_server(lambda r, w, own=own: _answer(r, w, own), "127.0.0.1", port, backlog=4096)
        await asyncio.Event().wait()

    asyncio.run(serve())


@dataclass
class Sent:
    """What came of the requests of one client: seconds to the first token, and the number of each end."""

    rate: float
    # Those that were sent when the engines were full.
    late: list[float] = field(default_factory=list)
    # When the complete ones ended, since the trace began.
    done: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    ends: dict[str, int] = field(default_factory=dict)

    def end(self, kind: str) -> None:
        self.ends[kind] = self.ends.get(kind, 0) + 1

    def p99(self) -> float:
        return statistics.quantiles(self.late, n=100, method="inclusive")[98] if len(self.late) > 1 else float("nan")


async def _ask(port: int, key: str, sent: Sent) -> None:
    """Send one request over its own connection."""
    body = b'{"model": "m", "messages": [], "stream": true}'
    head = f"POST {CHAT} HTTP/1.1\r\nhost: gw\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n"
    began = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + b"content-type: application/json\r\nconnection: close\r\n\r\n" + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        status = answer.split()[1].decode()
        await reader.read(1)
        first = time.monotonic() - began
        rest = await reader.read()
        writer.close()
        complete = status != "200" or rest.endswith(b"0\r\n\r\n")
        sent.end(status if complete else "broken")
        if status == "200" and complete:
            sent.late += [first] if began - sent.began >= FILLS else []
            sent.done.append(time.monotonic() - sent.began)
    except (OSError, asyncio.IncompleteReadError):
        sent.end("lost")


async def _send(ports: list[int], name: str, sent: Sent, seconds: float) -> None:
    """Send requests at random times with a mean rate, to one gateway after the other."""
    tasks: list[asyncio.Task[None]] = []
    began, due = time.monotonic(), 0.0
    while (due := due + random.expovariate(sent.rate)) < seconds:
        await asyncio.sleep(max(0.0, began + due - time.monotonic()))
        tasks.append(asyncio.create_task(_ask(ports[len(tasks) % len(ports)], key_of(name), sent)))
    await asyncio.gather(*tasks)


def _streams(port: int, name: str, sent: Sent, seconds: float, number: int = 90) -> None:
    """Keep ``number`` streams of one connection of HTTP/2 busy."""
    end, headers = time.monotonic() + seconds, [("authorization", f"Bearer {key_of(name)}")]
    with Http2(port) as connection:
        open_streams: set[int] = set()
        while time.monotonic() < end and connection.open:
            while len(open_streams) < number:
                open_streams.add(connection.request("POST", CHAT, headers, b'{"messages": [], "stream": true}'))
            connection.read(lambda now=open_streams: bool(now & connection.ended), 1)  # type: ignore[misc]
            for stream in open_streams & (connection.ended | set(connection.resets)):
                status = connection.statuses.get(stream)
                sent.end("broken" if stream in connection.resets else str(status))
                sent.done += [time.monotonic() - sent.began] * (status == 200)
            refused = [stream for stream in open_streams if connection.statuses.get(stream) == 429]
            open_streams -= connection.ended | set(connection.resets)
            # A client that comes again at once would only be refused.
            time.sleep(0.2 if refused else 0)


def key_of(name: str) -> str:
    """Return the key of a client, which has the name of its team."""
    return f"key-of-{name}-".ljust(40, "x")


@contextlib.contextmanager
def site(mode: str, engines: int, places: int, gateways: int = 1) -> Iterator[list[RunningGateway]]:
    """Yield gateways in front of engines."""
    ports = [free_port() for _n in range(engines)]
    process = multiprocessing.Process(target=_engines, args=(ports, places), daemon=True)
    process.start()
    plans = {f"chat-{n}": plan(port, args={"max-num-seqs": places}) for n, port in enumerate(ports, 1)}
    options = {"admission": mode, "teams": TEAMS, "shares": {"gw": gateways}}
    clients = [client(name, key_of(name), team=name) for name in TEAMS]
    with contextlib.ExitStack() as stack:
        found = []
        for _n in range(gateways):
            own = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            found.append(stack.enter_context(gateway(own, [], clients, plans=plans, options=options)))
            if mode == "auto":
                planned = found[-1].decided["agent"]
                stack.enter_context(agent(own, found[-1].agent_port, ports, 60, interval=2, planned=planned))
        for each in found:
            until(lambda each=each: all(each.state(f"gw--{name}") == "UP" for name in plans))
        yield found
        process.terminate()


async def _trace(found: list[RunningGateway], rates: dict[str, float], seconds: float, event: Any) -> dict[str, Sent]:
    sent = {name: Sent(rate) for name, rate in rates.items()}
    ports = [each.port for each in found]
    sending = [asyncio.create_task(_send(ports, name, each, seconds)) for name, each in sent.items()]
    if event:
        await asyncio.sleep(seconds / 2)
        await asyncio.to_thread(event, found)
    await asyncio.gather(*sending)
    return sent


async def _beside_streams(found: list[RunningGateway], rate: float, seconds: float) -> dict[str, Sent]:
    """Return what came of a quiet team beside four connections with many streams each."""
    loud = Sent(0)
    threads = [asyncio.to_thread(_streams, found[0].port, "noisy", loud, seconds) for _connection in range(4)]
    quiet, *_done = await asyncio.gather(_trace(found, {"quiet": rate}, seconds, None), *threads)
    return {**quiet, "noisy": loud}


def end_worker(found: list[RunningGateway]) -> None:
    """Kill the last gateway and start it again, as systemd does."""
    with contextlib.suppress(ProcessLookupError):
        workers = Path(f"/proc/{found[-1].process.pid}/task/{found[-1].process.pid}/children").read_text().split()
        for pid in (*map(int, workers), found[-1].process.pid):
            os.kill(pid, signal.SIGKILL)
    found[-1].process.wait()
    found[-1].start()


def show(name: str, sent: dict[str, Sent], seconds: float) -> tuple[float, float]:
    """Print a line of the trace; return its answers a second, and the last percent of its first team."""
    done = sum(at <= seconds for each in sent.values() for at in each.done) / (seconds - SECONDS)
    parts = [
        f"{team} p50 {statistics.median(each.late or [0]):.2f} p99 {each.p99():.2f} s {json.dumps(each.ends)}"
        for team, each in sent.items()
    ]
    print(f"{name}: {done:.1f} answers/s; " + "; ".join(parts), flush=True)
    return done, next(iter(sent.values())).p99()


def judge(found: dict[str, tuple[float, float]]) -> bool:
    """Print each goal of the traces with two gateways and with one; return whether all are kept."""
    kept = []
    for name, alone, most in (("gold and batch", "gold", GOLD), ("quiet and noisy team", "quiet team", QUIET)):
        for trace in (name, f"{name}, two gateways"):
            answers = found[trace][0] / found[f"{name}, off"][0]
            times = found[trace][1] / found[f"{alone} alone"][1]
            kept.append(times <= most and answers >= ANSWERS)
            print(f"{'kept' if kept[-1] else 'MISSED'}: {trace}: {times:.2f} (at most {most}) times the last percent "
                  f"alone, {answers:.3f} (at least {ANSWERS}) of the answers without admission")  # fmt: skip
    return all(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=FILLS + 60)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--places", type=int, default=16)
    parser.add_argument("--judge", action="store_true", help="only what the goals are about; fail where one is missed")
    given = parser.parse_args()
    can = given.engines * given.places / SECONDS
    chats, much = 0.1 * can, 1.9 * can
    results: dict[str, tuple[float, float]] = {}

    def run(name: str, mode: str, rates: dict[str, float], gateways: int = 1, event: Any = None) -> None:
        with site(mode, given.engines, given.places, gateways) as found:
            sent = asyncio.run(_trace(found, rates, given.seconds, event))
            results[name] = show(name, sent, given.seconds)

    run("gold alone", "auto", {"product": chats})
    run("gold and batch, off", "off", {"product": chats, "nightly": much})
    run("gold and batch", "auto", {"product": chats, "nightly": much})
    run("quiet team alone", "auto", {"quiet": chats})
    run("quiet and noisy team, off", "off", {"quiet": chats, "noisy": much})
    run("quiet and noisy team", "auto", {"quiet": chats, "noisy": much})
    run("gold and batch, two gateways", "auto", {"product": chats, "nightly": much}, 2)
    run("quiet and noisy team, two gateways", "auto", {"quiet": chats, "noisy": much}, 2)
    if given.judge:
        sys.exit(0 if judge(results) else 1)
    run("two noisy teams, 1 to 3", "auto", {"quiet": much / 4, "noisy": much * 3 / 4})
    run("all classes", "auto", {"product": chats, "quiet": 0.3 * can, "noisy": 0.8 * can, "nightly": 0.8 * can})
    run("a reload in the middle", "auto", {"product": chats, "nightly": much}, 1, lambda all_: all_[0].reload())
    run("the end of one of two gateways", "auto", {"product": chats, "nightly": much}, 2, end_worker)
    with site("auto", given.engines, given.places) as found:
        sent = asyncio.run(_beside_streams(found, chats, given.seconds))
        show("quiet team beside 360 streams of HTTP/2", sent, given.seconds)


if __name__ == "__main__":
    main()
