# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the gateway in front of four vLLM that share one chip:  gateway.py VARIANTS BASE_YAML CHIP PORT RESULTS

A real HAProxy with the role's template, and vLLM with the role's middleware. VARIANTS and BASE_YAML are those of
sweep.py. First what the gateway costs, against the same vLLM asked directly, by turns: one request at a time, then 64
and 512 streams at the same time; directly with the usage in each chunk too; through a gateway;
and through one that counts tokens. Then what affinity is worth: conversations of many turns to one vLLM, and to all
four through the gateway, with leastconn and with affinity by turns, with several bounds of a server's share. Then 512
streams to one vLLM with four API servers. The figures are printed and written to RESULTS/gateway.json. Runs as root
with the Python of vLLM's environment. COLLECTION is the collection's directory. MEASURE names what to measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import resource
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import sweep
import yaml

COLLECTION = Path(os.environ["COLLECTION"])
# Behind vLLM's own packages, which have another Jinja and YAML than ansible-core for another Python.
sys.path += [
    "/opt/ansible",
    *map(str, (COLLECTION.parents[2], COLLECTION / "tests/fakes", COLLECTION / "roles/vllm/files")),
]

from gateways import KEY, gateway, plan, until

MODEL = "openai/gpt-oss-20b"
SERVERS, TURNS = 4, 5
WAYS = ("direct", "usage", "gateway", "counted")
SINGLE, STREAMS = 200, {64: 10, 512: 6}
# One process alone reads some 12,000 tokens a second.
TOKENS, CLIENTS = 128, 4
# Numbers of three digits in a text, each about two tokens: of the system prompt, a question and an answer; and how many
# conversations there are, and how many at the same time.
SYSTEM, QUESTION, ANSWER = 500, 500, 150
CONVERSATIONS, AT_ONCE, ROUNDS = 56, 16, 2
# Percentages of the mean that a server may have at the same time; 0 is leastconn.
SHARES = (0, 150, 200, 300)
MEASURE = os.environ.get("MEASURE", "single 64 512 affinity servers").split()
COUNTERS = {"queries": "vllm:prefix_cache_queries_total", "hits": "vllm:prefix_cache_hits_total"}
GOALS = {"added_ms": 2.0, "lost_percent": 2.0, "hits": 0.95, "load": 1.25, "first": 0.6}
LAST = b"\r\n0\r\n\r\n"


def memory(chip: str) -> float:
    """Return the GiB of the chip."""
    import pynvml  # of vLLM's environment

    pynvml.nvmlInit()
    return float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(int(chip))).total) / 2**30


def configured(base: dict[str, Any], chip: str) -> dict[str, Any]:
    """Return the settings of each of the four, which share the memory of the chip."""
    # Weights of 13 GiB and some for graphs; 10 GiB hold all conversations, and with 12 the four run out of memory.
    cache, share = (10, 0.2) if memory(chip) > 120 else (2, 0.22)
    length = {} if cache > 4 else {"max-model-len": 16384}
    return {
        **base, **length, "gpu-memory-utilization": share, "kv-cache-memory-bytes": cache << 30,
        "middleware": ["availability.Availability"],
    }  # fmt: skip


def start(base: dict[str, Any], chip: str, port: int, results: Path, **more: Any) -> int:
    """Start a server; return its process."""
    name = f"gateway-{port}"
    run, cache = Path(f"/run/vllm/{name}"), Path(f"/var/cache/vllm/{name}/usage")
    for each in (run, cache):
        each.mkdir(parents=True, exist_ok=True)
    (run / "ready").touch()
    config, log = results / f"{name}.yaml", results / f"{name}.log"
    settings = {**sweep.spell({**configured(base, chip), **more}), "port": port, "host": "127.0.0.1"}
    config.write_text(yaml.safe_dump(settings))
    return sweep.serve(config, {"AVAILABILITY_DIRECTORY": str(run)}, log, chip, False)


def wait(process: int, port: int, results: Path) -> None:
    """Wait until a server answers."""
    wrong = sweep.wait_for_answer(process, port, time.monotonic() + 240)
    assert not wrong, f"{wrong}\n{sweep.why(results / f'gateway-{port}.log')}"


async def ask(port: int, path: str, body: dict[str, Any]) -> tuple[float, float]:
    """Send a request with a key over its own connection; return the seconds to the first token, and in total."""
    text = json.dumps(body).encode()
    began, first, end, size = time.perf_counter(), 0.0, b"", 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Authorization: Bearer {KEY}")
    writer.write("\r\n".join([*lines, f"Content-Length: {len(text)}", "", ""]).encode() + text)
    while not end.endswith(LAST):
        part = await reader.read(65536)
        assert part, (size, end)
        assert size or part.startswith(b"HTTP/1.1 200"), part
        if not first and b"data: " in part:
            first = time.perf_counter() - began
        end, size = (end + part)[-2000:], size + len(part)
    writer.close()
    assert first and b"data: [DONE]" in end, end
    return first, time.perf_counter() - began


def completion(chance: random.Random, tokens: int) -> dict[str, Any]:
    """Return a request with a prompt of 250 tokens that nothing else begins with."""
    prompt = [chance.randrange(1000, 190000) for _token in range(250)]
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}


def request(way: str, chance: random.Random, tokens: int) -> dict[str, Any]:
    """Return a request for one of the ways."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    return {**completion(chance, tokens), **({"stream_options": options} if way == "usage" else {})}


async def one_at_a_time(ports: dict[str, int]) -> dict[str, Any]:
    """Return the median time to the first token by each way, and what each adds, in milliseconds."""
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    chance = random.Random()
    for turn in range(SINGLE + 10):
        for way in in_turn(turn):
            first, _total = await ask(ports[way], "/v1/completions", request(way, chance, 1))
            if turn >= 10:
                took[way].append(first * 1000)
    added = {
        way: statistics.median(after - before for before, after in zip(took["direct"], took[way])) for way in WAYS[1:]
    }
    found = {way: statistics.median(values) for way, values in took.items()}
    print(
        f"GATEWAY one at a time: {shown(found, 2)} ms; added {shown(added, 2)} ms (goal {GOALS['added_ms']})",
        flush=True,
    )
    return {"median_ms": found, "added_ms": added}


def in_turn(turn: int) -> list[str]:
    """Return the ways, another one first each time."""
    return [*WAYS[turn % len(WAYS) :], *WAYS[: turn % len(WAYS)]]


def run_streams(way: str, port: int, number: int, seed: int) -> tuple[float, float, list[float]]:
    """Run so many streams at the same time; return when they began and ended, and the seconds to each first token."""
    chance = random.Random(seed)
    bodies = [request(way, chance, TOKENS) for _stream in range(number)]

    async def run() -> list[tuple[float, float]]:
        return await asyncio.gather(*(ask(port, "/v1/completions", body) for body in bodies))

    began = time.monotonic()
    took = asyncio.run(run())
    return began, time.monotonic(), [first for first, _total in took]


def streams(pool: Any, ports: dict[str, int], number: int, rounds: int) -> dict[str, Any]:
    """Return the tokens per second of so many streams by each way, and the percentage that each loses."""
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    firsts: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(-1, rounds):
        for way in in_turn(turn):
            shares = [(way, ports[way], number // CLIENTS, random.randrange(10**9)) for _client in range(CLIENTS)]
            parts = pool.starmap(run_streams, shares, chunksize=1)
            seconds = max(end for _began, end, _firsts in parts) - min(began for began, _end, _firsts in parts)
            if turn >= 0:
                rates[way].append(number * TOKENS / seconds)
                firsts[way].append(statistics.median(first for part in parts for first in part[2]) * 1000)
    lost = {way: [(1 - after / before) * 100 for before, after in zip(rates["direct"], rates[way])] for way in WAYS[1:]}
    medians, first = ({way: statistics.median(each[way]) for way in WAYS} for each in (rates, firsts))
    spread = "; ".join(f"{way} {min(each):.1f} to {max(each):.1f}" for way, each in lost.items())
    middle = {way: statistics.median(each) for way, each in lost.items()}
    print(f"GATEWAY {number} streams, {rounds} rounds: {shown(medians, 0)} tok/s; first token {shown(first, 0)} ms")
    print(f"  lost: {shown(middle, 1)} % (goal {GOALS['lost_percent']}; {spread})", flush=True)
    return {"rates": rates, "first_ms": firsts, "lost_percent": middle}


def shown(found: dict[str, float], digits: int) -> str:
    """Return figures of all ways in words."""
    return ", ".join(f"{way} {value:.{digits}f}" for way, value in found.items())


def numbers(chance: random.Random, count: int) -> str:
    """Return a text of so many numbers."""
    return " ".join(str(chance.randrange(100, 1000)) for _number in range(count))


def turns(name: str, number: int) -> list[dict[str, Any]]:
    """Return the requests of a conversation; ``name`` makes those of a round new ones."""
    messages = [{"role": "system", "content": numbers(random.Random(name), SYSTEM)}]
    chance = random.Random(f"{name} {number}")
    found = []
    for _turn in range(TURNS):
        messages = [*messages, {"role": "user", "content": numbers(chance, QUESTION)}]
        found.append({"model": MODEL, "messages": messages, "max_tokens": 32, "stream": True})
        messages = [*messages, {"role": "assistant", "content": numbers(chance, ANSWER)}]
    return found


def counted(ports: list[int]) -> list[dict[str, float]]:
    """Return how many tokens each server looked for in its cache, and found."""
    found = []
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found.append(
            {
                kind: sum(float(value) for value in re.findall(rf"(?m)^{name}(?:{{.*}})? (\S+)$", text))
                for kind, name in COUNTERS.items()
            }
        )
    return found


async def converse(port: int, name: str) -> list[float]:
    """Hold all conversations, some turns at the same time; return the seconds to each first token.

    People think between two turns: the next turn is that of a conversation that has waited.
    """
    waiting, took, chance = [turns(name, number) for number in range(CONVERSATIONS)], [], random.Random(name)

    async def work() -> None:
        while waiting:
            left = waiting.pop(chance.randrange(len(waiting)))
            took.append((await ask(port, "/v1/chat/completions", left.pop(0)))[0])
            if left:
                waiting.append(left)

    await asyncio.gather(*(work() for _worker in range(AT_ONCE)))
    return took


def conversations(port: int, engines: list[int], name: str) -> dict[str, float]:
    """Return the hit rate, the load of the busiest server by the mean, and the median time to the first token."""
    before, began = counted(engines), time.perf_counter()
    took = asyncio.run(converse(port, name))
    seconds = time.perf_counter() - began
    made = [{kind: after[kind] - then[kind] for kind in COUNTERS} for then, after in zip(before, counted(engines))]
    queries = [each["queries"] for each in made]
    found = {
        "hits": sum(each["hits"] for each in made) / sum(queries), "load": max(queries) * len(queries) / sum(queries),
        "first": statistics.median(took) * 1000, "p95": statistics.quantiles(took, n=20)[18] * 1000,
    }  # fmt: skip
    print(
        f"AFFINITY {name}: hits {found['hits']:.3f}, load max/mean {found['load']:.2f}, first token "
        f"{found['first']:.0f} ms at the median, {found['p95']:.0f} at p95; {len(took)} turns, "
        f"{sum(queries):.0f} tokens in {seconds:.1f} s",
        flush=True,
    )
    return found


def through_gateway(engines: list[int], share: int, name: str) -> dict[str, float]:
    """Measure with affinity and a bound of a server's share, or with leastconn."""
    plans = {f"chat-{number}": plan(port, models=(MODEL,)) for number, port in enumerate(engines, 1)}
    options = {"services": {"chat": {"affinity": "prefix" if share else "none"}}, "tokens": True}
    bound = {"__gateway_most_of_share": share}
    with gateway(Path(tempfile.mkdtemp(dir="/run")), [], plans=plans, options=options, variables=bound) as found:
        until(lambda: all(found.state(f"gw--chat-{number}") == "UP" for number in range(1, len(engines) + 1)))
        return conversations(found.port, engines, name)


def measure_overhead(port: int, measured: list[str]) -> dict[str, Any]:
    """Measure what the gateway costs in front of one server."""
    plans = {"chat-1": plan(port, models=(MODEL,))}
    with contextlib.ExitStack() as stack:
        ports = dict.fromkeys(WAYS, port)
        for way, tokens in (("gateway", False), ("counted", True)):
            place = Path(tempfile.mkdtemp(dir="/run"))
            found = stack.enter_context(gateway(place, [], plans=plans, options={"tokens": tokens}))
            until(lambda found=found: found.state("gw--chat-1") == "UP")
            ports[way] = found.port
        pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(CLIENTS))
        result: dict[str, Any] = {}
        if "single" in measured:
            result["single"] = asyncio.run(one_at_a_time(ports))
        for number, rounds in STREAMS.items():
            if str(number) in measured:
                result[str(number)] = streams(pool, ports, number, rounds)
        return result


def measure_affinity(engines: list[int]) -> dict[str, Any]:
    """Measure what affinity is worth."""
    seed = random.randrange(10**6)
    # The first ones compile kernels, on each server.
    for number, port in enumerate(engines):
        conversations(port, [port], f"warm-up {seed} {number}")
    alone = conversations(engines[0], engines[:1], f"one {seed}")
    rounds: dict[int, list[dict[str, float]]] = {share: [] for share in SHARES}
    for number in range(ROUNDS):
        for share in SHARES if number % 2 else reversed(SHARES):
            name = f"share {share}" if share else "leastconn"
            rounds[share].append(through_gateway(engines, share, f"{name}, {seed} {number}"))
    for share in SHARES[1:]:
        ratios = {
            "hits": statistics.mean(each["hits"] for each in rounds[share]) / alone["hits"],
            "load": max(each["load"] for each in rounds[share]),
            "first": statistics.median(each["first"] / other["first"] for each, other in zip(rounds[share], rounds[0])),
        }  # fmt: skip
        shown_ratios = ", ".join(f"{name} {value:.2f} (goal {GOALS[name]})" for name, value in ratios.items())
        print(f"AFFINITY with a share of {share} %: {shown_ratios}", flush=True)
    return {"one": alone, **{str(share): found for share, found in rounds.items()}}


def main() -> int:
    variants, base_file, chip, first, directory = sys.argv[1:6]
    results, port = Path(directory), int(first)
    results.mkdir(parents=True, exist_ok=True)
    base = sweep.change(yaml.safe_load(Path(base_file).read_text()), yaml.safe_load(Path(variants).read_text())["base"])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    sweep.import_once()
    found: dict[str, Any] = {}
    processes: list[int] = []

    def begin(ports: list[int], **more: Any) -> None:
        began = time.monotonic()
        new = [start(base, chip, each, results, **more) for each in ports]
        processes.extend(new)
        for process, each in zip(new, ports):
            wait(process, each, results)
        sweep.say(f"GATEWAY {len(ports)} started in {time.monotonic() - began:.0f} s; {sweep.used_memory(chip)}")

    def finish() -> None:
        for process in processes:
            sweep.end(process)
        processes.clear()
        sweep.wait_for_memory(chip)

    try:
        begin([port])
        found["overhead"] = measure_overhead(port, MEASURE)
        if "affinity" in MEASURE:
            # They find what the first one has compiled.
            engines = [port + number for number in range(SERVERS)]
            begin(engines[1:])
            found["affinity"] = measure_affinity(engines)
        if "servers" in MEASURE:
            finish()
            begin([port], **{"api-server-count": 4})
            found["servers"] = measure_overhead(port, ["512"])
        return 0
    finally:
        (results / "gateway.json").write_text(json.dumps(found, indent=1) + "\n")
        finish()


if __name__ == "__main__":
    sys.exit(main())
