# SPDX-License-Identifier: GPL-3.0-or-later
"""Two gateways before two real vLLM: what is stored for each client is what vLLM counts, over thousands of requests."""

from __future__ import annotations

import contextlib
import json
import os
import time

import pytest

from tests.fakes.gateways import HAPROXY, client, free_port, gateway, plan, until
from tests.integration.gateway_load import CHAT, LAST, Load, Requests
from tests.integration.real_engines import real_engines
from tests.integration.test_gateway_usage import service, stored, total
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

# As many as fit into the seconds.
MOST, SECONDS = (
    int(os.environ.get(f"REAL_COUNT_{name}", value)) for name, value in (("REQUESTS", 10_000), ("SECONDS", 420))
)
NAMES = ("gw1", "gw2")
CLIENTS = ("alice", "bob", "carol", "dave", "breaker")
COUNTERS = {"prompt": "vllm:prompt_tokens_total", "completion": "vllm:generation_tokens_total"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]


def body_of(path, words, tokens, stream, told=True):
    """Return a request; with ``told`` a stream of the OpenAI API ends with the usage."""
    text = "The fleet. " * words
    if path == "/v1/completions":
        body = {"prompt": text or "?", "max_tokens": tokens, "ignore_eos": True}
    elif path == "/v1/responses":
        body = {"input": text or "?", "max_output_tokens": tokens}
    else:
        body = {"messages": [{"role": "user", "content": text or "?"}], "max_tokens": tokens}
    if path == CHAT:
        body["ignore_eos"] = True
    if stream and told and path in (CHAT, "/v1/completions"):
        body["stream_options"] = {"include_usage": True}
    return json.dumps({"model": "m", "stream": stream, **body})


def usages(text):
    """Yield each usage in the JSON of an answer, or in its events."""
    for line in text.decode().splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line.removeprefix("data: "))
            for part in (found, found.get("response") or {}, found.get("message") or {}):
                if isinstance(part.get("usage"), dict):
                    yield part["usage"]


class RealRequests(Requests):
    """Asks in all forms, and adds what vLLM says to the client of prompt and answer."""

    def ask(self, port):
        path, stream = self.chance.choice(list(LAST)), self.chance.random() < 0.5
        body = body_of(path, self.chance.randint(0, 5), self.chance.randint(1, 4), stream)
        connection, answer = self.send(port, path, body)
        with contextlib.closing(connection):
            text = answer.read()
        if answer.status != 200 or (stream and LAST[path] not in text):
            return f"{path} stream={stream}: {answer.status} {text[-300:]}"
        prompt = completion = 0
        for usage in usages(text):
            prompt = max(prompt, usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
            completion = max(completion, usage.get("completion_tokens") or usage.get("output_tokens") or 0)
        self.answered += 1
        self.prompt += prompt
        self.completion += completion
        return "" if prompt and completion else f"{path} stream={stream}: no usage in {text[-300:]}"


class BreakOffReal(Requests):
    """Breaks streams off after some hundred tokens."""

    def ask(self, port):
        connection, answer = self.send(port, CHAT, body_of(CHAT, 2, 3000, True, told=False))
        most, seen = self.chance.randint(200, 300), 0
        with contextlib.closing(connection):
            while answer.status == 200 and seen < most and not self.load.stopped.is_set():
                text = answer.read1(65536)
                if not text:
                    return f"ended after {seen} tokens"
                seen += text.count(b'"choices"')
        self.answered += 1
        return "" if answer.status == 200 else f"{answer.status}"


def test_what_is_stored_is_what_a_real_vllm_counts(tmp_path):
    python = fetched(environment)
    write(FAMILIES["llama"](), tmp_path / "model")
    with contextlib.ExitStack() as stack:
        arguments = ("--max-num-seqs", "32", "--max-model-len", "4096")
        engines = stack.enter_context(real_engines(python, tmp_path, tmp_path / "model", 2, *arguments))
        plans = {f"chat-{n}": plan(each.port, models=("m",)) for n, each in enumerate(engines, 1)}
        keys = {name: f"key-of-{name}".ljust(40, "x") for name in CLIENTS}
        gateways = {}
        for name in NAMES:
            port = free_port()
            (tmp_path / name).mkdir()
            more = {"plans": plans, "name": name, "options": {"tokens": True, "tokens_port": port}}
            known = [client(each, key) for each, key in keys.items()]
            gateways[name] = stack.enter_context(gateway(tmp_path / name, [], known, **more))
            stack.enter_context(service(tmp_path, name, engines, port))
        until(lambda: all(g.state(f"gw--chat-{n}") == "UP" for g in gateways.values() for n in (1, 2)))
        before = {kind: sum(each.counter(name) for each in engines) for kind, name in COUNTERS.items()}
        load, began, reloads = Load(gateways), time.monotonic(), 0
        busy = [RealRequests(load, name, keys[name], seed) for seed, name in enumerate(CLIENTS[:4] * 3)]
        with load.running([*busy, BreakOffReal(load, "breaker", keys["breaker"])]):
            while load.answered < MOST and time.monotonic() - began < SECONDS and not load.failures:
                time.sleep(5)
                gateways[NAMES[reloads % 2]].reload()
                reloads += 1
        assert load.failures == [] and load.lost == 0
        took = time.monotonic() - began
        answered = load.answered
        until(lambda: sum(row["requests"] for row in stored(tmp_path, "gw1")) == answered, 60)
        until(lambda: stored(tmp_path, "gw1") == stored(tmp_path, "gw2"))
        rows = stored(tmp_path, *NAMES)
        for name in CLIENTS[:4]:
            own = [each for each in busy if each.name == name]
            for kind in COUNTERS:
                assert total(rows, kind, client=name) == sum(getattr(each, kind) for each in own), (name, kind)
        assert total(rows, "aborted") == total(rows, "aborted", client="breaker") > 0 == total(rows, "uncounted")
        print(f"{answered} requests in {took:.0f} s with {reloads} reloads, {total(rows, 'aborted')} broken off")
        until(lambda: all(each.counter("vllm:num_requests_running") == 0 for each in engines))
        for kind, name in COUNTERS.items():
            made = sum(each.counter(name) for each in engines) - before[kind]
            complete = total(rows, kind) - total(rows, kind, client="breaker")
            broken, counted = made - complete, total(rows, kind, client="breaker")
            print(f"{kind}: vLLM {made}, of that broken off {broken}; stored {counted} of those")
            # What the other clients got is exact, so the difference is of what was broken off.
            assert 0.99 * broken <= counted <= broken, kind
