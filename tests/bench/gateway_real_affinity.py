#!/usr/bin/env python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What affinity is worth with real vLLM: conversations of many turns, by vllm:prefix_cache_hits, on this CPU.

A tiny model whose layers cost time, and no weights of use. First one vLLM with the cache of all four gives the hit rate
that is possible; then four get the same conversations through HAProxy with leastconn and with affinity, by turns.

    tests/bench/gateway_real_affinity.py [CONVERSATIONS [CONVERSATIONS AT THE SAME TIME]]

Reports three ratios: the hit rate to that of one vLLM (goal 0.95 or more), the most loaded server to the mean (1.25 or
less), and the median time to the first token to that of leastconn (0.6 or less).
"""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / ".collections")]

from tests.fakes.gateways import KEY, gateway, plan, until
from tests.integration.real_engines import RealEngine, real_engines
from tools.tiny_models.build import write
from tools.tiny_models.families import llama
from tools.vllm.fetch_vllm_release import environment

SERVERS, TURNS = 4, 4
# Letters, which are tokens of this model: of the system prompt, of a question and of an answer.
SYSTEM, QUESTION, ANSWER = 256, 300, 100
LENGTH = 4096
# Of the model, so that a prompt of a thousand tokens takes some tenths of a second on one processor.
LAYERS, INNER = 8, 4096
COUNTERS = {"queries": "vllm:prefix_cache_queries_total", "hits": "vllm:prefix_cache_hits_total"}
GOALS = {"hits": 0.95, "load": 1.25, "first": 0.6}
Turn = list[dict[str, str]]


def letters(chance: random.Random, number: int) -> str:
    """Return a text that no other conversation has."""
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=number))


def turns(name: str, number: int) -> list[Turn]:
    """Return the messages of each turn of a conversation; ``name`` makes those of a measurement new ones."""
    chance = random.Random(f"{name} {number}")
    messages: Turn = [{"role": "system", "content": (f"{name} " * SYSTEM)[:SYSTEM]}]
    found = []
    for _turn in range(TURNS):
        messages = [*messages, {"role": "user", "content": letters(chance, QUESTION)}]
        found.append(messages)
        messages = [*messages, {"role": "assistant", "content": letters(chance, ANSWER)}]
    return found


def first_token(port: int, messages: Turn) -> float:
    """Return the seconds until the first token of an answer."""
    body = {"model": "m", "messages": messages, "max_tokens": 4, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    first = 0.0
    while line := answer.readline():
        if not first and b'"content":"' in line and b'"content":""' not in line:
            first = time.perf_counter() - began
    connection.close()
    assert answer.status == 200 and first, answer.status
    return first


def converse(port: int, name: str, number: int) -> list[float]:
    """Hold a conversation."""
    return [first_token(port, messages) for messages in turns(name, number)]


def measure(port: int, engines: list[RealEngine], name: str, conversations: int, at_once: int) -> dict[str, Any]:
    """Return the hit rate, the load of the busiest server by the mean, and the seconds until the first tokens."""

    def read() -> list[dict[str, int]]:
        return [{kind: each.counter(counter) for kind, counter in COUNTERS.items()} for each in engines]

    before, began = read(), time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        took = [each for found in pool.map(lambda n: converse(port, name, n), range(conversations)) for each in found]
    seconds = time.perf_counter() - began
    made = [{kind: after[kind] - then[kind] for kind in COUNTERS} for then, after in zip(before, read())]
    queries = [each["queries"] for each in made]
    found = {
        "hits": sum(each["hits"] for each in made) / sum(queries), "load": max(queries) * len(queries) / sum(queries),
        "first": statistics.median(took),
    }  # fmt: skip
    late = statistics.quantiles(took, n=20)[18]
    print(
        f"{name:10} hits {found['hits']:.3f}  load max/mean {found['load']:.2f}  first token "
        f"{found['first'] * 1000:6.0f} ms at the median, {late * 1000:6.0f} at p95  {len(took)} in {seconds:.0f} s",
        flush=True,
    )
    return found


def through_gateway(directory: Path, engines: list[RealEngine], affinity: str, name: str, *more: int) -> dict[str, Any]:
    """Measure with an affinity."""
    directory.mkdir()
    plans = {f"chat-{n}": plan(each.port, models=("m",)) for n, each in enumerate(engines, 1)}
    options = {"services": {"chat": {"affinity": affinity}}}
    with gateway(directory, [], plans=plans, options=options) as found:
        until(lambda: all(found.state(f"gw--chat-{n}") == "UP" for n in range(1, len(engines) + 1)))
        return measure(found.port, engines, name, *more)


def main() -> None:
    conversations, at_once = (int(word) for word in [*sys.argv[1:], *("60", "8")[len(sys.argv) - 1 :]])
    directory = Path(tempfile.mkdtemp())
    write(llama(LAYERS, INNER), directory / "model")
    # A conversation has at most that many tokens; a server keeps somewhat more than its share of all of them.
    each = SYSTEM + TURNS * (QUESTION + ANSWER) + 200
    blocks = conversations * each // SERVERS // 128 * 3 // 2
    common = ["--max-model-len", LENGTH, "--max-num-seqs", "8", "--num-gpu-blocks-override"]
    python = environment()
    with real_engines(python, directory / "one", directory / "model", 1, *common, blocks * SERVERS) as engines:
        alone = measure(engines[0].port, engines, "one", conversations, at_once)
    with real_engines(python, directory / "four", directory / "model", SERVERS, *common, blocks) as engines:
        rounds = []
        for number in range(2):
            for affinity in ("none", "prefix") if number % 2 else ("prefix", "none"):
                name = f"{'leastconn' if affinity == 'none' else affinity}{number}"
                rounds.append(
                    (affinity, through_gateway(directory / name, engines, affinity, name, conversations, at_once))
                )
    first = {
        kind: statistics.median(found["first"] for way, found in rounds if way == kind) for kind in ("none", "prefix")
    }
    own = [found for way, found in rounds if way == "prefix"]
    ratios = {
        "hits": statistics.mean(found["hits"] for found in own) / alone["hits"],
        "load": max(found["load"] for found in own), "first": first["prefix"] / first["none"],
    }  # fmt: skip
    print("  ".join(f"{name} {value:.2f} (goal {GOALS[name]})" for name, value in ratios.items()))


if __name__ == "__main__":
    main()
