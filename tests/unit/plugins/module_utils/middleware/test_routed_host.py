# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may say where a KV cache is: the role's middleware on prefill and decode hosts."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import routed_host as routed

PREFILL, DECODE, GATEWAY = "10.0.0.3", "10.0.0.1", "10.0.0.9"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
PLACE = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_block_ids": [1], "remote_host": PREFILL}
WANTED = {"do_remote_decode": True, **dict.fromkeys(routed.FROM)}


def ask(body, monkeypatch, client=DECODE, side="decode", path="/v1/chat/completions", headers=(), method="POST"):
    """Send a request in two parts; return what vLLM gets of it, and the header that says who computed the prompt."""
    monkeypatch.setenv("PREFILL_HOSTS", f"10.0.0.2 {PREFILL}" if side == "decode" else "")
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts = [
        {"type": "http.request", "body": text[:5], "more_body": True},
        {"type": "http.request", "body": text[5:], "more_body": False},
    ]
    got, sent = {}, []

    async def engine(scope, receive, send):
        message = await receive()
        assert message["body"] == text[:5] or not message.get("more_body")
        got.update(scope=scope, body=message["body"], headers=dict(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "path": path, "raw_path": path.encode(), "method": method, "client": (client, 40000),
        "server": (DECODE, 8000), "headers": [(b"content-length", b"%d" % len(text)), *headers],
    }  # fmt: skip
    asyncio.run(routed.Routed(engine)(scope, receive, send))
    return got, dict(sent[0]["headers"]).get(b"prefill", b"").decode()


def answered(place, monkeypatch, key, parts=2, size=0):
    """Return what the router gets of a prefill host that says ``place`` of a KV cache."""
    monkeypatch.setenv("PREFILL_HOSTS", "")
    monkeypatch.setenv("GATEWAY_SECRET", f"service:{key} instance:{KEYS[1]} sha256:0" if key else "")
    text, sent = json.dumps({"id": "x", "pad": "x" * size, **place}).encode(), []

    async def engine(_scope, receive, send):
        await receive()
        length = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        step = len(text) // parts + 1
        for at in range(0, len(text), step):
            more = at + step < len(text)
            await send({"type": "http.response.body", "body": text[at : at + step], "more_body": more})

    async def receive():
        return {"type": "http.request", "body": json.dumps({**CHAT, "kv_transfer_params": WANTED}).encode()}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/v1/messages", "method": "POST", "client": (DECODE, 4), "server": (PREFILL, 8000)}
    asyncio.run(routed.Routed(engine)({**scope, "headers": []}, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    assert int(dict(sent[0]["headers"])[b"content-length"]) == len(body)
    return json.loads(body)


KEYS = [base64.b64encode(bytes([number]) * 32).decode() for number in range(3)]


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_decode_host_believes_what_a_prefill_host_has_proven(monkeypatch, parts):
    said = answered({"kv_transfer_params": PLACE}, monkeypatch, KEYS[0], parts)["kv_transfer_params"]
    # While the secret changes both are known.
    for words, who in ((KEYS[:1], "remote"), ([KEYS[2], KEYS[0]], "remote"), (KEYS[1:], "local")):
        monkeypatch.setenv("GATEWAY_SECRET", " ".join(f"service:{key}" for key in words))
        got, by = ask({**CHAT, "kv_transfer_params": said}, monkeypatch)
        assert by == who
        assert json.loads(got["body"]) == ({**CHAT, "kv_transfer_params": PLACE} if who == "remote" else CHAT)


def test_what_a_client_says_where_the_prefill_host_says_nothing_is_not_believed(monkeypatch):
    """vllm-router 0.1.17 passes it on to the decode host, with a prefill host of this group in it too."""
    for said in ({}, {"kv_transfer_params": None}):
        assert answered(said, monkeypatch, KEYS[0]).get("kv_transfer_params") is None
    said = answered({"kv_transfer_params": PLACE}, monkeypatch, KEYS[0])["kv_transfer_params"]
    monkeypatch.setenv("GATEWAY_SECRET", f"service:{KEYS[0]}")
    for more in (
        {"proof": ""},
        {"proof": None},
        {"proof": "\ud800"},
        {"proof": [1]},
        {"remote_block_ids": [2]},
        {"x": 1},
    ):
        got, who = ask({**CHAT, "kv_transfer_params": {**said, **more}}, monkeypatch)
        assert json.loads(got["body"]) == CHAT and who == "local"
    got, who = ask({**CHAT, "kv_transfer_params": PLACE}, monkeypatch)
    assert json.loads(got["body"]) == CHAT and who == "local"


def test_a_large_answer_of_a_prefill_host_passes_without_a_proof(monkeypatch):
    found = answered({"kv_transfer_params": PLACE}, monkeypatch, KEYS[0], 9, 3 * routed.MOST_PROVEN)
    assert found["kv_transfer_params"] == PLACE
    assert answered({"kv_transfer_params": PLACE}, monkeypatch, "")["kv_transfer_params"] == PLACE


class Measured(bytes):
    """A part of an answer that counts how often somebody asks for its length."""

    times = 0

    def __len__(self):
        Measured.times += 1
        return super().__len__()


def test_an_answer_in_many_parts_is_measured_once():
    sent = []

    async def send(message):
        sent.append(message)

    async def run():
        passed = routed.with_proof(send, KEYS[0])
        await passed({"type": "http.response.start", "status": 200, "headers": []})
        for part in range(500):
            await passed({"type": "http.response.body", "body": Measured(b"x"), "more_body": part < 499})

    asyncio.run(run())
    assert sent[1]["body"] == b"x" * 500 and Measured.times <= 500


def test_no_answer_names_the_hosts(monkeypatch):
    headers = [(b"x-request-id", b"___prefill_addr_10.0.0.3:8000___decode_addr_10.0.0.1:8000_1")]
    got, _who = ask(CHAT, monkeypatch, path="/routed/v1/completions", headers=headers)
    assert b"x-request-id" not in got["headers"]
    got, _who = ask(CHAT, monkeypatch, path="/routed/v1/completions", headers=[(b"x-request-id", b"mine")])
    assert got["headers"][b"x-request-id"] == b"mine"


def test_a_decode_host_believes_its_own_router(monkeypatch):
    got, who = ask({**CHAT, "kv_transfer_params": PLACE}, monkeypatch, path="/routed/v1/chat/completions")
    assert json.loads(got["body"])["kv_transfer_params"] == PLACE and who == "remote"
    assert got["scope"]["path"] == "/v1/chat/completions" and got["scope"]["raw_path"] == b"/v1/chat/completions"
    assert int(got["headers"][b"content-length"]) == len(got["body"])


@pytest.mark.parametrize(
    ("client", "place"),
    [
        # Another host, a gateway for instance, that asks vLLM itself.
        (GATEWAY, PLACE),
        # The router passes on what a client has set where no prefill host says it.
        (DECODE, {**PLACE, "remote_host": "192.0.2.1"}),
        (DECODE, {**PLACE, "remote_host": None}),
        (DECODE, "text"),
        (DECODE, [PLACE]),
    ],
)
def test_no_client_says_where_a_cache_is(monkeypatch, client, place):
    got, who = ask({**CHAT, "kv_transfer_params": place}, monkeypatch, client)
    assert json.loads(got["body"]) == CHAT and who == "local"


@pytest.mark.parametrize("inner", ["vllm_xargs", "extra_args", "sampling_params"])
def test_no_part_of_a_request_says_it_either(monkeypatch, inner):
    body = {**CHAT, inner: {"kv_transfer_params": PLACE, "extra_args": {"kv_transfer_params": PLACE}}}
    got, who = ask(body, monkeypatch)
    assert json.loads(got["body"]) == {**CHAT, inner: {"extra_args": {}}} and who == "local"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_neither_an_encoding_nor_an_escape_hides_it(monkeypatch, encoding):
    text = json.dumps({**CHAT, "kv_transfer_params": PLACE})
    for each in (text, text.replace('"kv_transfer', '"\\u006bv_transfer')):
        got, _who = ask(each.encode(encoding), monkeypatch, GATEWAY)
        assert json.loads(got["body"]) == CHAT


def test_a_prefill_host_is_asked_to_keep_a_cache_and_never_to_fetch_one(monkeypatch):
    got, who = ask({**CHAT, "kv_transfer_params": WANTED}, monkeypatch, GATEWAY, "prefill")
    assert json.loads(got["body"])["kv_transfer_params"] == WANTED and who == ""
    for name in routed.FROM:
        got, _who = ask({**CHAT, "kv_transfer_params": {**WANTED, name: "x"}}, monkeypatch, GATEWAY, "prefill")
        assert json.loads(got["body"]) == CHAT


@pytest.mark.parametrize(
    "more",
    [{"n": 2}, {"best_of": 3}, {"prompt": ["a", "b"]}, {"prompt": [[1], [2]]}, {"echo": True}, {"prompt_logprobs": 1}],
)
def test_several_answers_and_facts_about_the_prompt_need_it_computed_here(monkeypatch, more):
    """On both sides, so that a prefill host keeps no cache that nobody fetches."""
    for side, place in (("decode", PLACE), ("prefill", WANTED)):
        got, _who = ask({**CHAT, **more, "kv_transfer_params": place}, monkeypatch, side=side)
        assert json.loads(got["body"]) == {**CHAT, **more}


@pytest.mark.parametrize("more", [{"n": 1}, {"n": None}, {"prompt": [1, 2]}, {"prompt": "a", "echo": False}])
def test_one_answer_to_one_prompt_is_computed_elsewhere(monkeypatch, more):
    _got, who = ask({**CHAT, **more, "kv_transfer_params": PLACE}, monkeypatch)
    assert who == "remote"


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"kv_transfer_params"', b"[" * 100_000 + b'"kv_transfer_params"'])
def test_what_is_no_request_is_left_to_vllm(monkeypatch, body):
    got, who = ask(body, monkeypatch)
    assert got["body"] == body and who == "local"


def test_a_request_without_it_is_not_touched(monkeypatch):
    text = json.dumps(CHAT).encode() + b" "
    assert ask(text, monkeypatch)[0]["body"] == text


def test_the_router_s_header_names_the_client_for_whom_tokens_are_counted(monkeypatch):
    value = b"gateway-usage=" + base64.b64encode(b"gw alice research")
    got, _who = ask(CHAT, monkeypatch, headers=[(b"baggage", value)])
    assert got["headers"][b"x-gateway-usage"] == b"gw alice research"
    # Not from another host, not beside the gateway's own, and not on a prefill host, which would count a prompt twice.
    for more in ({"client": GATEWAY}, {"side": "prefill"}):
        got, _who = ask(CHAT, monkeypatch, headers=[(b"baggage", value)], **more)
        assert b"x-gateway-usage" not in got["headers"]
    got, _who = ask(CHAT, monkeypatch, headers=[(b"x-gateway-usage", b"gw bob -"), (b"baggage", value)])
    assert got["headers"][b"x-gateway-usage"] == b"gw bob -"
    for wrong in (b"userId=alice", b"gateway-usage=%%", b"gateway-usage=abc"):
        assert b"x-gateway-usage" not in ask(CHAT, monkeypatch, headers=[(b"baggage", wrong)])[0]["headers"]


def test_other_methods_pass_at_once(monkeypatch):
    got, who = ask(b"", monkeypatch, path="/health", method="GET")
    assert got["scope"]["path"] == "/health" and who == ""
