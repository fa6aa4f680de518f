# SPDX-License-Identifier: GPL-3.0-or-later
"""Send completions with random prompts, so many at a time:  load.py PORT AT_ONCE REQUESTS SEED RESULT

1,024 tokens in, 512 out, as `vllm bench serve --dataset-name random` with these lengths. That program needs 25 s until
its first request, and this one under 1 s: the first minute after a start is measured from its first second.
Runs with the Python of vLLM's environment. Variables of the environment change it:

CLIENTS     processes that share the requests, default 1: one alone reads some 12,000 tokens a second
TOKENS_OUT  default 512
SAMPLING    JSON of parameters, such as {"top_p": 0.9}: without them the sampler has nothing to filter
CHIP        number of the chip by NVML whose energy is read before and after
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

MODEL = "openai/gpt-oss-20b"
TOKENS_IN, TOKENS_OUT = 1024, int(os.environ.get("TOKENS_OUT", "512"))
# Ordinary tokens of gpt-oss.
FIRST_TOKEN, LAST_TOKEN = 1000, 190000
SAMPLING = json.loads(os.environ.get("SAMPLING", "{}"))
# Of each request: seconds from the first request of all to its own beginning, to its first token, and in total.
Timed = tuple[float, float, float]


async def ask(session: Any, url: str, prompt: list[int]) -> tuple[float, float]:
    """Send one request; return its seconds to the first token, and in total."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": TOKENS_OUT, "ignore_eos": True, "stream": True, **SAMPLING}
    began = time.perf_counter()
    first = 0.0
    async with session.post(url, json=body) as answer:
        answer.raise_for_status()
        async for part in answer.content.iter_any():
            if not first and part.startswith(b"data:"):
                first = time.perf_counter() - began
    return first, time.perf_counter() - began


async def send(port: int, at_once: int, prompts: list[list[int]]) -> list[Timed]:
    """Send all prompts; return when each began by the clock of the machine, and its seconds."""
    import aiohttp  # the process that only counts does not need it

    url = f"http://127.0.0.1:{port}/v1/completions"
    found: list[Timed] = []

    async def work(session: Any) -> None:
        while prompts:
            at = time.monotonic()
            found.append((at, *await ask(session, url, prompts.pop())))

    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(work(session) for _worker in range(at_once)))
    return found


def run_client(port: int, at_once: int, requests: int, seed: str, ready: Any) -> list[Timed]:
    """Make the prompts, wait for the other clients, and send them."""
    import aiohttp as _loaded  # noqa: F401  # before the others are waited for

    draw = random.Random(seed)
    prompts = [[draw.randrange(FIRST_TOKEN, LAST_TOKEN) for _token in range(TOKENS_IN)] for _prompt in range(requests)]
    if ready is not None:
        ready.wait(60)
    return asyncio.run(send(port, at_once, prompts))


def share(total: int, parts: int, number: int) -> int:
    """Return the part of a whole number that one of several gets."""
    return total // parts + (number < total % parts)


def run_clients(port: int, at_once: int, requests: int, seed: int, clients: int) -> list[Timed]:
    """Share the requests among the clients; return what all of them timed."""
    if clients == 1:
        return run_client(port, at_once, requests, str(seed), None)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(clients) as pool:
        ready = manager.Barrier(clients)
        arguments = [
            (port, share(at_once, clients, number), share(requests, clients, number), f"{seed}-{number}", ready)
            for number in range(clients)
        ]
        return [timed for part in pool.starmap(run_client, arguments, chunksize=1) for timed in part]


def read_energy() -> float | None:
    """Return the joules that the chip has used so far, if a chip is named and its driver counts them."""
    if "CHIP" not in os.environ:
        return None
    try:
        import pynvml  # of vLLM's environment

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(os.environ["CHIP"]))
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except Exception as error:  # an older chip or driver does not count
        print(f"no energy: {error!r}", file=sys.stderr)
        return None


def run(port: int, at_once: int, requests: int, seed: int, clients: int) -> dict[str, object]:
    """Send all requests; return the figures."""
    before = read_energy()
    found = run_clients(port, at_once, requests, seed, clients)
    after = read_energy()
    began = min(at for at, _first, _total in found)
    took = max(at + total for at, _first, total in found) - began
    ttft = [first * 1000 for _at, first, _total in found]
    tpot = [(total - first) / (TOKENS_OUT - 1) * 1000 for _at, first, total in found]
    # The chip waits while the clients start; that is in the joules, and not in the seconds.
    joules = {"joules": after - before} if before is not None and after is not None else {}
    return {
        "at_once": at_once, "requests": len(found), "seed": seed, "clients": clients, "seconds": took,
        "output_tokens_per_second": len(found) * TOKENS_OUT / took,
        "median_ttft_ms": statistics.median(ttft), "p99_ttft_ms": sorted(ttft)[int(len(ttft) * 0.99)],
        "median_tpot_ms": statistics.median(tpot), **joules,
        "each": [[round(at - began, 4), round(first, 4), round(total, 4)] for at, first, total in found],
    }  # fmt: skip


def main() -> None:
    """Run the command of the command line."""
    result = run(*map(int, sys.argv[1:5]), int(os.environ.get("CLIENTS", "1")))
    Path(sys.argv[5]).write_text(json.dumps(result) + "\n")
    print(
        f"{result['output_tokens_per_second']:.0f} tok/s, TTFT median {result['median_ttft_ms']:.0f} ms "
        f"(p99 {result['p99_ttft_ms']:.0f}), TPOT median {result['median_tpot_ms']:.1f} ms, "
        f"{result['requests']} requests in {result['seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
