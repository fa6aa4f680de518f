# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who computes the prompt of a request: the role's middleware of decode hosts, before stub servers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "roles/vllm/files/remote_prefill.py"
SPEC = importlib.util.spec_from_file_location("remote_prefill", SCRIPT)
remote = importlib.util.module_from_spec(SPEC)
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("AVAILABILITY_DIRECTORY", "/run/vllm/none")
    SPEC.loader.exec_module(remote)

CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 50,
    "stream": True,
    "logprobs": True,
}
PLACE = {"remote_engine_id": "e", "remote_block_ids": [1, 2]}


@pytest.fixture(autouse=True)
def ready(tmp_path, monkeypatch):
    """vLLM on this host is warm."""
    monkeypatch.setattr(remote, "READY", str(tmp_path / "ready"))
    (tmp_path / "ready").touch()
    return tmp_path / "ready"


class Prefill:
    """A prefill host: answers /health, and requests with ``status`` and ``answer``; ``hangs`` never answers them."""

    def __init__(self, status=200, answer=None, hangs=False):
        self.status, self.hangs, self.asked, self.server = status, hangs, [], None
        self.answer = {"kv_transfer_params": PLACE} if answer is None else answer

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length:")[1].split()[0])
        body = await reader.readexactly(length)
        path = head.split()[1]
        if path != "/health":
            self.asked.append((path, head.lower(), json.loads(body)))
            if self.hangs:
                await asyncio.sleep(60)
        status = 200 if path == "/health" else self.status
        text = json.dumps(self.answer).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(text)) + text)
        await writer.drain()
        writer.close()


class Engine:
    """vLLM on the decode host: keeps what it is asked."""

    def __init__(self):
        self.bodies, self.lengths, self.status = [], [], 200

    async def __call__(self, scope, receive, send):
        message = await receive()
        self.bodies.append(message["body"])
        self.lengths.append(int(dict(scope["headers"]).get(b"content-length", -1)))
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


async def ask(middleware, body, path="/v1/chat/completions", headers=()):
    """Send a request in two parts; return the header of the answer that says who computed the prompt."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts = [
        {"type": "http.request", "body": text[:5], "more_body": True},
        {"type": "http.request", "body": text[5:], "more_body": False},
    ]
    if path not in remote.PATHS:
        parts = [{"type": "http.request", "body": text}]
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "method": "POST", "headers": [(b"content-length", b"1"), *headers]}
    await middleware(scope, receive, send)
    return dict(sent[0]["headers"]).get(b"prefill", b"").decode()


def run(monkeypatch, prefills, scenario, addresses=()):
    """Run ``scenario`` with a middleware before an engine, and stub prefill hosts that have been found healthy."""

    async def main():
        found = [*addresses, *[await each.start() for each in prefills]]
        monkeypatch.setenv("PREFILL_HOSTS", " ".join(found))
        engine = Engine()
        middleware = remote.RemotePrefill(engine)
        await asyncio.gather(*(host.check() for host in middleware.hosts))
        middleware.watching = [None]
        try:
            return await scenario(middleware, engine)
        finally:
            for each in prefills:
                each.server.close()

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_the_prompt_is_computed_elsewhere_and_the_answer_here(monkeypatch):
    prefill = Prefill()

    async def scenario(middleware, engine):
        assert await ask(middleware, CHAT, headers=[(b"authorization", b"Bearer k"), (b"cookie", b"c")]) == "remote"
        [(path, head, asked)] = prefill.asked
        assert path == "/v1/chat/completions"
        assert "authorization: bearer k" in head and "cookie" not in head
        assert asked["max_completion_tokens"] == 1 and asked["stream"] is False
        assert not {"max_tokens", "logprobs"} & set(asked)
        assert asked["kv_transfer_params"]["do_remote_decode"] is True
        [body] = engine.bodies
        assert json.loads(body) == {**CHAT, "kv_transfer_params": PLACE}
        assert engine.lengths == [len(body)]

    run(monkeypatch, [prefill], scenario)


def test_each_kind_of_request_has_the_limit_that_it_knows(monkeypatch):
    prefill = Prefill()

    async def scenario(middleware, _engine):
        assert await ask(middleware, {"prompt": [1, 2, 3], "max_tokens": 9}, "/v1/completions") == "remote"
        assert await ask(middleware, {"input": "hi", "max_output_tokens": 9}, "/v1/responses") == "remote"
        assert await ask(middleware, {**CHAT, "max_tokens": 9}, "/v1/messages") == "remote"
        asked = [each[2] for each in prefill.asked]
        assert [asked[0]["max_tokens"], asked[1]["max_output_tokens"], asked[2]["max_tokens"]] == [1, 1, 1]
        # Nobody will ask the prefill host for it.
        assert asked[1]["store"] is False and "store" not in asked[2]

    run(monkeypatch, [prefill], scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[" * 100_000,
        b"[1]",
        {**CHAT, "n": 2},
        {"prompt": ["a", "b"]},
        {"prompt": [[1], [2]]},
        {"prompt": "a", "echo": True},
        {**CHAT, "prompt_logprobs": 1},
    ],
    ids=["no JSON", "too deep", "a list", "several answers", "several prompts", "lists of tokens", "echo", "logprobs"],
)
def test_requests_whose_prompt_is_computed_here(monkeypatch, body):
    prefill = Prefill()

    async def scenario(middleware, engine):
        assert await ask(middleware, body) == "local"
        assert engine.bodies == [body if isinstance(body, bytes) else json.dumps(body).encode()]

    run(monkeypatch, [prefill], scenario)
    assert not prefill.asked


def test_requests_that_warm_this_host_up_are_computed_here(monkeypatch, ready):
    ready.unlink()

    async def scenario(middleware, _engine):
        assert await ask(middleware, CHAT) == "local"
        ready.touch()
        assert await ask(middleware, CHAT) == "remote"

    run(monkeypatch, [Prefill()], scenario)


def test_after_a_failed_transfer_prompts_are_computed_here_until_the_engine_is_another(monkeypatch):
    prefill = Prefill()

    async def scenario(middleware, engine):
        engine.status = 500
        assert await ask(middleware, CHAT) == "remote"
        engine.status = 200
        assert await ask(middleware, CHAT) == "local"
        # It computes no prompts that nobody fetches.
        assert len(prefill.asked) == 1
        prefill.answer = {"kv_transfer_params": {**PLACE, "remote_engine_id": "f"}}
        middleware.hosts[0].mark(False, gone=True)
        middleware.hosts[0].mark(True)
        assert await ask(middleware, CHAT) == "remote"

    run(monkeypatch, [prefill], scenario)


def test_after_a_failed_transfer_another_prefill_host_takes_over(monkeypatch):
    hosts = [Prefill(), Prefill(answer={"kv_transfer_params": {**PLACE, "remote_engine_id": "f"}})]

    async def scenario(middleware, engine):
        engine.status = 500
        assert await ask(middleware, CHAT) == "remote"
        engine.status = 200
        assert [await ask(middleware, CHAT) for _request in range(3)] == ["remote"] * 3
        assert sorted(len(each.asked) for each in hosts) == [1, 3]

    run(monkeypatch, hosts, scenario)


def test_other_paths_are_left_alone(monkeypatch):
    async def scenario(middleware, engine):
        assert await ask(middleware, {"input": "hi"}, "/v1/embeddings") == ""
        assert engine.lengths == [1]

    run(monkeypatch, [Prefill()], scenario)


def test_a_client_does_not_say_from_where_this_host_fetches(monkeypatch):
    async def scenario(middleware, engine):
        own = {"kv_transfer_params": {"do_remote_prefill": True, "remote_host": "192.0.2.1"}}
        assert await ask(middleware, {**CHAT, **own}) == "remote"
        assert json.loads(engine.bodies[0])["kv_transfer_params"] == PLACE
        assert await ask(middleware, {**CHAT, "n": 2, **own}) == "local"
        assert "kv_transfer_params" not in json.loads(engine.bodies[1])

    run(monkeypatch, [Prefill()], scenario)


@pytest.mark.parametrize(
    "prefill",
    [Prefill(status=500), Prefill(status=400), Prefill(answer={}), Prefill(answer=[])],
    ids=["500", "400", "empty object", "list"],
)
def test_a_prefill_host_that_fails(monkeypatch, prefill):
    async def scenario(middleware, engine):
        assert await ask(middleware, CHAT) == "local"
        assert json.loads(engine.bodies[0]) == CHAT

    run(monkeypatch, [prefill], scenario)


def test_another_one_takes_over_from_one_that_fails(monkeypatch):
    bad, good = Prefill(status=500), Prefill()

    async def scenario(middleware, _engine):
        assert await ask(middleware, CHAT) == "remote"
        assert len(bad.asked) == len(good.asked) == 1

    run(monkeypatch, [bad, good], scenario)


def test_one_that_has_ended_is_not_asked_again(monkeypatch, capsys):
    prefill = Prefill()

    async def scenario(middleware, _engine):
        prefill.server.close()
        await prefill.server.wait_closed()
        assert await ask(middleware, CHAT) == "local"
        assert not middleware.hosts[0].up

    run(monkeypatch, [prefill], scenario)
    told = capsys.readouterr().err
    assert " computes prompts" in told and " does not answer, so it computes no prompts" in told


def test_a_request_does_not_wait_for_a_host_that_is_lost_meanwhile(monkeypatch):
    async def scenario(middleware, _engine):
        asking = asyncio.ensure_future(ask(middleware, CHAT))
        while not middleware.hosts[0].busy:
            await asyncio.sleep(0.01)
        # It is stopping: what it has begun it completes.
        middleware.hosts[0].mark(False)
        await asyncio.sleep(0.1)
        assert not asking.done()
        middleware.hosts[0].mark(False, gone=True)
        assert await asyncio.wait_for(asking, 5) == "local"
        assert middleware.hosts[0].busy == 0

    run(monkeypatch, [Prefill(hangs=True)], scenario)


def test_the_host_with_the_fewest_prompts_is_asked(monkeypatch):
    first, second = Prefill(hangs=True), Prefill()

    async def scenario(middleware, _engine):
        asking = asyncio.ensure_future(ask(middleware, CHAT))
        while not middleware.hosts[0].busy:
            await asyncio.sleep(0.01)
        assert await ask(middleware, CHAT) == "remote"
        assert len(second.asked) == 1
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking

    run(monkeypatch, [first, second], scenario)


def test_a_silent_host_is_lost_after_several_checks(monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", 0.05)

    async def scenario(middleware, _engine):
        host = middleware.hosts[0]

        async def silent(*_words):
            await asyncio.sleep(60)

        monkeypatch.setattr(host, "_ask", silent)
        for _check in range(remote.TRIES - 1):
            await host.check()
            assert host.up
        await host.check()
        assert not host.up

    run(monkeypatch, [Prefill()], scenario)


def test_an_answer_that_is_cut_off_is_none(monkeypatch):
    with pytest.raises(remote.http.client.HTTPException):
        remote.parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}")
