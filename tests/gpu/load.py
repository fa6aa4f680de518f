# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send completions with random prompts, so many at a time:  load.py PORT AT_ONCE REQUESTS SEED RESULT

1,024 tokens in, 512 out, as `vllm bench serve --dataset-name random` with these lengths. That program needs 25 s until
its first request, and this one under 1 s: the first minute after a start is measured from its first second.
Runs with the Python of vLLM's environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import aiohttp

MODEL = "openai/gpt-oss-20b"
TOKENS_IN, TOKENS_OUT = 1024, 512
# Ordinary tokens of gpt-oss.
FIRST_TOKEN, LAST_TOKEN = 1000, 190000
# JSON of parameters in the environment, such as {"top_p": 0.9}: without them the sampler has nothing to filter.
SAMPLING = json.loads(os.environ.get("SAMPLING", "{}"))


async def ask(session: aiohttp.ClientSession, url: str, prompt: list[int]) -> tuple[float, float]:
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


async def run(port: int, at_once: int, requests: int, seed: int) -> dict[str, object]:
    """Send all requests; return the figures."""
    draw = random.Random(seed)
    prompts = [[draw.randrange(FIRST_TOKEN, LAST_TOKEN) for _token in range(TOKENS_IN)] for _prompt in range(requests)]
    url = f"http://127.0.0.1:{port}/v1/completions"
    found: list[tuple[float, float, float]] = []
    began = time.perf_counter()

    async def work(session: aiohttp.ClientSession) -> None:
        while prompts:
            at = time.perf_counter() - began
            found.append((at, *await ask(session, url, prompts.pop())))

    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(work(session) for _worker in range(at_once)))
    took = time.perf_counter() - began
    ttft = [first * 1000 for _at, first, _total in found]
    tpot = [(total - first) / (TOKENS_OUT - 1) * 1000 for _at, first, total in found]
    return {
        "at_once": at_once, "requests": len(found), "seed": seed, "seconds": took,
        "output_tokens_per_second": len(found) * TOKENS_OUT / took,
        "median_ttft_ms": statistics.median(ttft), "p99_ttft_ms": sorted(ttft)[int(len(ttft) * 0.99)],
        "median_tpot_ms": statistics.median(tpot),
        # Of each request: when it began, seconds to the first token, and in total.
        "each": [[round(value, 4) for value in one] for one in found],
    }  # fmt: skip


def main() -> None:
    """Run the command of the command line."""
    result = asyncio.run(run(*map(int, sys.argv[1:5])))
    Path(sys.argv[5]).write_text(json.dumps(result) + "\n")
    print(
        f"{result['output_tokens_per_second']:.0f} tok/s, TTFT median {result['median_ttft_ms']:.0f} ms "
        f"(p99 {result['p99_ttft_ms']:.0f}), TPOT median {result['median_tpot_ms']:.1f} ms, "
        f"{result['requests']} requests in {result['seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
