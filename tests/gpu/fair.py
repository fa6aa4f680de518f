# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a trace of short chats and batch on a gateway:  fair.py PORT KEYS RESULT ENGINE ENGINE gold|both|scale SECONDS

Two teams with keys in KEYS: `product`, whose short requests come in bursts, and `nightly`, which has as many at once as
it can and comes again when the gateway says so. `gold` is the first one alone; `both` are both, and `nightly` goes on
until the bursts have their answers; `scale` sends many at once to one replica, and says after how many seconds the
second ENGINE has written tokens. Tokens per second are those that both engines have counted, without the first seconds.
Python of the operating system, without packages.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import re
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

MODEL = "openai/gpt-oss-20b"
# Tokens in and out.
SHORT, LONG = (200, 96), (512, 256)
# Short requests: so many a second, and every so many seconds so many more within one second.
RATE, EVERY, BURST = 4.0, 10.0, 60
# Batch: processes, and requests at once of each.
CLIENTS, AT_ONCE = 4, 350
# Seconds that are not counted, and those that batch goes on after the last short request.
RAMP, AFTER = 10.0, 12.0
PATIENCE = 45.0
# When it was sent, since the trace began; status; seconds to the first token, and in total.
Asked = tuple[float, str, float, float]


def body(chance: random.Random, tokens: tuple[int, int]) -> bytes:
    """Return a request with a prompt that nothing else begins with."""
    prompt = chance.choices(range(1000, 190000), k=tokens[0])
    return json.dumps(
        {"model": MODEL, "prompt": prompt, "max_tokens": tokens[1], "ignore_eos": True, "stream": True}
    ).encode()


async def ask(port: int, key: str, text: bytes, began: float) -> tuple[Asked, float]:
    """Send a request; return what came of it, and after how many seconds to come again."""
    at, first, again = time.monotonic(), 0.0, 0.0
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: gw\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Authorization: Bearer {key}\r\nContent-Length: {len(text)}\r\n\r\n")  # fmt: skip
        writer.write(head.encode() + text)
        answer = await reader.readuntil(b"\r\n\r\n")
        status, end = answer.split()[1].decode(), b""
        if found := re.search(rb"(?i)\r\nretry-after: (\d+)", answer):
            again = float(found[1])
        while part := await reader.read(1 << 16):
            end += part
            if not first and b"data: " in end:
                first = time.monotonic() - at
            end = end[-100:]
        if status == "200" and b"data: [DONE]" not in end:
            status = "broken"
    except (OSError, asyncio.IncompleteReadError) as error:
        status = type(error).__name__
    finally:
        if writer:
            writer.close()
    return (at - began, status, first, time.monotonic() - at), again


async def short(port: int, key: str, began: float, seconds: float) -> list[Asked]:
    """Send short requests for so long; return what came of them."""
    chance = random.Random()
    times = [0.0]
    while times[-1] < seconds:
        times.append(times[-1] + chance.expovariate(RATE))
    times = [
        *times[1:-1],
        *(at + chance.random() for at in range(2, int(seconds), int(EVERY)) for _each in range(BURST)),
    ]
    tasks = []
    for at in sorted(times):
        await asyncio.sleep(began + at - time.monotonic())
        tasks.append(asyncio.create_task(ask(port, key, body(chance, SHORT), began)))
    _done, late = await asyncio.wait(tasks, timeout=PATIENCE)
    for each in late:
        each.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return [task.result()[0] if task not in late else (seconds, "late", 0.0, PATIENCE) for task in tasks]


async def batch(
    port: int, key: str, began: float, seconds: float, at_once: int = AT_ONCE, spread: float = 2.0
) -> list[Asked]:
    """Have so many requests at once for so long; return what came of those that ended."""
    found: list[Asked] = []
    chance = random.Random()

    async def work() -> None:
        # Not all in the same moment.
        await asyncio.sleep(chance.random() * spread)
        while time.monotonic() < began + seconds:
            asked, again = await ask(port, key, body(chance, LONG), began)
            found.append(asked)
            if asked[1] != "200":
                # No two clients come again in the same moment.
                await asyncio.sleep(max(again, 0.5) * (1 + chance.random() / 2))

    workers = [asyncio.create_task(work()) for _worker in range(at_once)]
    await asyncio.wait(workers, timeout=max(0.0, began + seconds - time.monotonic()))
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return found


def run_batch(port: int, key: str, began: float, seconds: float) -> list[Asked]:
    """Run one client of batch in a process of its own."""
    return asyncio.run(batch(port, key, began, seconds))


def written(engine: str) -> float:
    """Return the tokens that an engine has written so far."""
    with urllib.request.urlopen(f"http://{engine}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(r"(?m)^vllm:generation_tokens_total(?:\{.*\})? (\S+)$", text))


async def count(engines: list[str], began: float, seconds: float) -> list[float]:
    """Return the tokens per second of each engine, after the first seconds."""
    ramp = min(RAMP, seconds / 3)
    await asyncio.sleep(began + ramp - time.monotonic())
    since, before = time.monotonic(), [await asyncio.to_thread(written, each) for each in engines]
    await asyncio.sleep(began + seconds - time.monotonic())
    until, after = time.monotonic(), [await asyncio.to_thread(written, each) for each in engines]
    return [(late - early) / (until - since) for early, late in zip(before, after)]


def described(name: str, asked: list[Asked]) -> dict[str, Any]:
    """Return the figures of a team, and print them."""
    first = sorted(one[2] for one in asked if one[1] == "200")
    ends = {status: sum(one[1] == status for one in asked) for status in sorted({one[1] for one in asked})}
    found = {"asked": len(asked), "ends": ends}
    if first:
        found |= {"p50": statistics.median(first), "p99": first[int(len(first) * 0.99)], "most": first[-1]}
    figures = ", ".join(f"{key} {found[key]:.2f} s" for key in ("p50", "p99", "most") if key in found)
    print(f"FAIR   {name}: {len(asked)} asked, {ends}; first token {figures}", flush=True)
    return found


async def trace(port: int, keys: Path, engines: list[str], what: str, seconds: float) -> dict[str, Any]:
    """Run a trace; return what came of it."""
    gold, nightly = ((keys / f"{team}.key").read_text().strip() for team in ("product", "nightly"))
    began = time.monotonic() + 2
    with multiprocessing.get_context("spawn").Pool(CLIENTS) as pool:
        waiting = None
        if what == "both":
            waiting = pool.starmap_async(run_batch, [(port, nightly, began, seconds + AFTER)] * CLIENTS, chunksize=1)
        chats, rates = await asyncio.gather(short(port, gold, began, seconds), count(engines, began, seconds))
        rest = [asked for part in waiting.get(PATIENCE) for asked in part] if waiting else []
    print(f"FAIR {what}: {sum(rates):.0f} tokens/s ({', '.join(f'{rate:.0f}' for rate in rates)})", flush=True)
    found = {"tokens_per_second": rates, "gold": described("gold", chats), "gold_each": chats}
    return {**found, "batch": described("batch", rest), "batch_each": rest} if rest else found


async def scale(port: int, keys: Path, engines: list[str], seconds: float) -> dict[str, Any]:
    """Send many at once; return the seconds until the second engine has written tokens."""
    key = (keys / "product.key").read_text().strip()
    before, began = written(engines[1]), time.monotonic()
    sending = asyncio.create_task(batch(port, key, began, seconds, 2 * AT_ONCE, 0.2))
    took = 0.0
    while not took and not sending.done():
        if await asyncio.to_thread(written, engines[1]) > before:
            took = time.monotonic() - began
            print(f"SCALE the second replica has written tokens after {took:.1f} s", flush=True)
        await asyncio.sleep(0.1)
    asked = await sending
    if not took:
        print(f"SCALE FAILED: the second replica has written nothing in {seconds:.0f} s", flush=True)
    return {"seconds": took, "gold": described("gold", asked), "each": asked}


def main() -> None:
    """Run the command of the command line."""
    port, keys, result, first, second, what, seconds = sys.argv[1:8]
    engines = [first, second]
    if what == "scale":
        found = asyncio.run(scale(int(port), Path(keys), engines, float(seconds)))
    else:
        found = asyncio.run(trace(int(port), Path(keys), engines, what, float(seconds)))
    Path(result).write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
