# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role's middleware counts for gateways, in front of a server that answers as vLLM does."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import usage_host

from tests.fakes.counted_engine import counted_engine, output, params
from tests.fakes.gateways import until

NAMED = {"X-Gateway-Usage": "gw1 alice research"}
CHAT = "/v1/chat/completions"


@pytest.fixture
def engine(tmp_path):
    with counted_engine(tmp_path / "chat") as found:
        yield found


def ask(engine, path, body, headers=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, NAMED if headers is None else headers)
    found = connection.getresponse()
    text = found.read()
    connection.close()
    return found.status, text


def records(engine, after="", wait=0):
    """Return the records of an instance, and the offsets behind them."""
    status, text = ask(engine, f"/gateway/usage?wait={wait}&after={after}", b"", {}, "GET")
    assert status == 200
    lines = [json.loads(line) for line in text.splitlines()]
    ends = {line["file"]: line["end"] for line in lines if "file" in line}
    return [line for line in lines if "file" not in line], ",".join(f"{name}:{end}" for name, end in ends.items())


def request(tokens=5, **more):
    return {"model": "m", "messages": [{"role": "user", "content": "word " * 7}], "max_tokens": tokens, **more}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_each_api_is_counted_in_both_of_its_forms(engine, path, stream):
    status, _text = ask(engine, path, request(5, stream=stream, max_output_tokens=5))
    assert status == 200
    (found,), _after = records(engine)
    assert abs(found.pop("at") - time.time()) < 60
    assert found == {
        "number": 1, "gateway": "gw1", "client": "alice", "team": "research", "model": "m", "state": "complete",
        "prompt": 7, "cached": 3, "completion": 5,
    }  # fmt: skip
    assert (engine.prompt, engine.generated) == (7, 5)
    assert b"word" not in b"".join(path.read_bytes() for path in Path(engine_records(engine)).iterdir())


def test_a_record_has_the_id_that_the_gateway_gave(engine):
    ask(engine, CHAT, request(5), {"X-Gateway-Usage": f"gw1 alice - {'r' * 200}"})
    (found,), _after = records(engine)
    assert found["id"] == "r" * 128


def test_a_record_has_the_time_of_the_gateway_and_what_passed_since(engine):
    engine.pause = 0.25
    for told, expected in (("1700000000", 1700000001), ("9" * 12, time.time()), ("-5", time.time())):
        ask(engine, CHAT, request(5), {"X-Gateway-Usage": f"gw1 alice - id {told}"})
        assert abs(records(engine)[0][-1]["at"] - expected) < 5


def engine_records(engine):
    return engine.role.app.app.records.directory


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling", "/score"])
@pytest.mark.parametrize("form", [{}, {"encoding_format": "bytes"}, {"encoding_format": "bytes_only"}])
def test_a_pooling_model_is_counted_in_every_form_of_its_answer(engine, path, form):
    ask(engine, path, {"model": "m", "input": "word " * 9, **form})
    (found,), _after = records(engine)
    assert (found["state"], found["model"], found["prompt"], found["completion"]) == ("complete", "m", 9, 0)


@pytest.mark.parametrize(
    ("options", "last", "each"),
    [
        (None, False, False),
        ({"include_usage": False}, False, False),
        ({"include_usage": True}, True, False),
        ({"continuous_usage_stats": True}, False, False),
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
    ],
)
def test_a_client_gets_the_usage_that_it_asked_for(engine, options, last, each):
    asked = request(3, stream=True, **({"stream_options": options} if options else {}))
    _status, counted = ask(engine, CHAT, asked)
    _status, plain = ask(engine, CHAT, asked, {})
    assert counted == plain and engine.requests[0][:2] == engine.requests[1][:2]
    assert counted.count(b'"choices":[]') == last and (counted.count(b'"usage":{"prompt') == 4 + last) == each
    assert counted.endswith(b"data: [DONE]\n\n")
    assert len(records(engine)[0]) == 1


def test_without_the_gateways_header_a_request_is_left_alone(engine):
    ask(engine, CHAT, request(3, stream=True), {})
    assert "stream_options" not in engine.requests[0][1]
    assert records(engine) == ([], "")


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","str\\u0065am":true,"max_tokens":2}  \n',
        '{"model":"m","stream":true,"max_tokens":2}'.encode("utf-16"),
        b'{"model":"m","stream":"yes","max_tokens":2}',
        b'{"model":"m","stream":false,"stream":1,"max_tokens":2}',
        b'{"model":"m","stream":true,"stream_options":null,"max_tokens":2}',
    ],
)
def test_no_way_to_write_a_stream_escapes_the_count(engine, body):
    ask(engine, CHAT, body)
    assert records(engine)[0][0]["completion"] == 2


def test_a_request_that_vllm_refuses_is_not_counted(engine):
    assert ask(engine, CHAT, request(model="unknown"))[0] == 404
    assert records(engine)[0] == []


@pytest.mark.parametrize(("n", "made"), [(1, 1), (2, 1)])
def test_a_stream_that_the_client_breaks_off_is_counted_as_far_as_it_was_sent(engine, n, made):
    engine.pause = 0.05
    with socket.create_connection(("127.0.0.1", engine.port)) as connection:
        body = json.dumps(request(500, stream=True, n=n)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nX-Gateway-Usage: gw1 alice -\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        got = b""
        while got.count(b"made") < 10:
            got += connection.recv(65536)
    (found,) = until(lambda: records(engine)[0])
    assert (found["state"], found["prompt"]) == ("aborted", 7)
    # A token may have been on its way; vLLM has made one more when it notices.
    assert 10 <= found["completion"] <= 14 and engine.generated - found["completion"] <= 2


def test_an_answer_that_is_no_stream_and_that_nobody_waits_for_is_named(engine):
    engine.pause = 0.05
    with socket.create_connection(("127.0.0.1", engine.port)) as connection:
        body = json.dumps(request(500)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nX-Gateway-Usage: gw1 alice -\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        until(lambda: engine.generated > 2)
    (found,) = until(lambda: records(engine)[0])
    assert (found["state"], found["prompt"]) == ("aborted", 7)
    assert 3 <= found["completion"] <= engine.generated <= found["completion"] + 2


def test_a_gateway_reads_on_where_it_stopped_and_waits_for_the_next_record(engine):
    for tokens in (1, 2):
        ask(engine, CHAT, request(tokens))
    first, after = records(engine)
    assert [each["completion"] for each in first] == [1, 2]
    started = time.monotonic()
    assert records(engine, after, 1) == ([], "") and time.monotonic() - started >= 1
    ask(engine, CHAT, request(3))
    assert [each["number"] for each in records(engine, after, 5)[0]] == [3]


def test_a_record_is_there_before_the_client_has_the_end(engine):
    after = ""
    for number in range(1, 51):
        ask(engine, CHAT, request(1, stream=bool(number % 2)))
        found, after = records(engine, after)
        assert [each["number"] for each in found] == [number]


def test_an_instance_that_ends_lets_no_gateway_wait(engine, tmp_path, monkeypatch):
    # Longer than the client of this test waits.
    monkeypatch.setattr(usage_host, "LONGEST_WAIT", 60.0)
    (tmp_path / "chat/closed").touch()
    assert records(engine, "", 60) == ([], "")


@pytest.mark.parametrize(
    "query",
    ["after=x", "after=../../etc/passwd:0", "wait=nan&after=a:-1", "wait=1e9", "%00=1", "after=a:" + "9" * 5000],
)
def test_a_query_that_makes_no_sense_reads_from_the_start(engine, query):
    ask(engine, CHAT, request(1))
    status, text = ask(engine, f"/gateway/usage?{query}", b"", {}, "GET")
    assert status == 200 and text.count(b'"number":1,') == 1


class Client:
    """An engine's client with the outputs of a test; ``left`` is what it still computes when a client is gone."""

    def __init__(self, *outputs, left=None):
        self.outputs, self.output_processor = outputs, SimpleNamespace(request_states=left or {})

    async def generate(self, prompt, sampling_params, request_id, *, lora_request=None):
        for each in self.outputs:
            await asyncio.sleep(0)
            yield each

    async def encode(self, prompt, pooling_params, request_id):
        yield self.outputs[0]


def counted(tmp_path, client, endpoint, kind="http"):
    """Return the records of a request to an endpoint, which gets the client, ``receive`` and ``send``."""
    models = SimpleNamespace(base_model_paths=[SimpleNamespace(name="m")])
    state = SimpleNamespace(engine_client=client, openai_serving_models=models)
    messages = iter([{"type": "http.request", "body": b""}, {"type": f"{kind}.disconnect"}])

    async def receive():
        return next(messages)

    async def send(_message):
        await asyncio.sleep(0)

    async def app(scope, receive, send):
        await endpoint(scope["app"].state.engine_client, receive, send)

    async def run():
        scope = {"type": kind, "method": "POST", "path": "/v1/any", "app": SimpleNamespace(state=state)}
        await usage(scope | {"headers": [(b"x-gateway-usage", b"gw1 alice research")]}, receive, send)
        await asyncio.sleep(0.05)

    usage = usage_host.Usage(app, str(tmp_path), str(tmp_path / "closed"))
    asyncio.run(run())
    lines = [json.loads(line) for path in sorted(tmp_path.iterdir()) for line in path.read_text().splitlines()]
    return [(each["state"], each["prompt"], each["completion"]) for each in lines]


ENDED = {"type": "http.response.start", "status": 200}, {"type": "http.response.body", "body": b"x"}


def test_each_prompt_of_a_request_counts_and_choices_share_one(tmp_path):
    async def endpoint(client, _receive, _send):
        running = [client.generate([], params(9, True), f"cmpl-{n}") for n in range(200)]
        for each in running:
            await each.__anext__()
            await each.__anext__()

    client = Client(output([1] * 100, 0, {0: [1]}, False), output(None, 0, {1: [1, 1]}, False))
    assert counted(tmp_path, client, endpoint) == [("aborted", 20_000, 600)]


def test_all_steps_of_a_beam_search_have_one_prompt(tmp_path):
    async def endpoint(client, _receive, send):
        async def search():
            for step in range(3):
                for beam in range(2 if step else 1):
                    async for _output in client.generate([], params(1, False), f"cmpl-{step:016x}-beam-{beam}"):
                        pass

        await asyncio.gather(search(), search())
        for message in ENDED:
            await send(message)

    client = Client(output([1] * 100, 50, {0: [1]}))
    assert counted(tmp_path, client, endpoint) == [("complete", 200, 10)]


@pytest.mark.parametrize("chosen", ["a-beam-b", "-beam-0", "0123456789abcdef-beam-0", f"-{'0' * 32}-beam-1", "beam"])
def test_no_id_that_a_client_chooses_makes_its_prompts_one(tmp_path, chosen):
    async def endpoint(client, _receive, send):
        # The gateway's digits and the number of the prompt follow what the client sent.
        for running in [client.generate([], params(1, False), f"cmpl-{chosen}-0123456789ab-{n}") for n in range(50)]:
            async for _output in running:
                pass
        for message in ENDED:
            await send(message)

    client = Client(output([1] * 1000, 0, {0: [1]}))
    assert counted(tmp_path, client, endpoint) == [("complete", 50_000, 50)]


def left_behind(number, tokens, name="cmpl-1", **more):
    """What the engine still computes when a client is gone."""
    found = {
        "prompt_token_ids": [1] * 30, "num_cached_tokens": 0, "is_prefilling": False, "request_index": number,
        "external_req_id": name, "detokenizer": SimpleNamespace(output_token_ids=[1] * tokens),
    }  # fmt: skip
    return SimpleNamespace(**{**found, **more})


async def leave(running, receive):
    """Wait for an output, and leave."""
    task = asyncio.ensure_future(running.__anext__())
    await receive()
    await receive()
    task.cancel()


def test_what_was_computed_before_a_client_left_counts_without_any_output(tmp_path):
    async def endpoint(client, receive, _send):
        running = client.generate([], params(9, False, 2), "cmpl-1")
        client.generate([], params(9, False), "cmpl-2")
        await leave(running, receive)

    left = {
        "0_cmpl-1": left_behind(0, 4), "1_cmpl-1": left_behind(1, 5),
        "other": left_behind(0, 0, name="other", is_prefilling=True),
        "cmpl-2": left_behind(0, 0, name="cmpl-2", is_prefilling=True),
    }  # fmt: skip
    assert counted(tmp_path, Client(left=left), endpoint) == [("aborted", 30, 9)]


@pytest.mark.parametrize(("most", "prompt"), [(1, 0), (2, 30)])
def test_a_prompt_that_waits_for_a_place_does_not_count(tmp_path, most, prompt):
    async def endpoint(client, receive, _send):
        await leave(client.generate([], params(9, False), "cmpl-1"), receive)

    waiting = {"other": left_behind(0, 4, name="other"), "cmpl-1": left_behind(0, 0, is_prefilling=True)}
    client = Client(left=waiting)
    client.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=most))
    assert counted(tmp_path, client, endpoint) == [("aborted", prompt, 0)]


@pytest.mark.parametrize(("kept", "own"), [(4, 5), (1, 900), (0, 7)])
def test_a_stream_whose_next_output_is_far_away_counts_what_was_generated(tmp_path, kept, own):
    async def endpoint(client, receive, _send):
        running = client.generate([], params(9, True), "cmpl-1")
        await running.__anext__()
        await leave(running, receive)

    client = Client(output([1] * 30, 0, {0: [1] * kept}, False), left={"cmpl-1": left_behind(0, own)})
    assert counted(tmp_path, client, endpoint) == [("aborted", 30, own)]


class Read:
    """Counts how often anything of such objects is read."""

    reads = 0

    def __getattribute__(self, name):
        Read.reads += 1
        return super().__getattribute__(name)


class ReadPart(Read, usage_host.Part):
    """A part of an answer."""


class ReadState(Read, SimpleNamespace):
    """A request that the engine computes."""


def reads_of_a_list(tmp_path, number):
    """Return how much is read of parts and states when the client of a list of prompts leaves and all of them end."""

    async def endpoint(client, receive, _send):
        running = [client.generate([], params(9, True), f"cmpl-{n}") for n in range(number)]
        for each in running:
            await each.__anext__()
        await receive()
        await receive()

    prefilling = {f"cmpl-{n}": left_behind(0, 2, f"cmpl-{n}") for n in range(number)}
    left = {name: ReadState(**vars(state)) for name, state in prefilling.items()}
    Read.reads, client = 0, Client(output([1] * 30, 0, {0: [1]}, False), left=left)
    assert counted(tmp_path / f"{number}", client, endpoint) == [("aborted", 30 * number, 2 * number)]
    return Read.reads


def test_a_list_of_prompts_costs_what_its_length_does(tmp_path, monkeypatch):
    monkeypatch.setattr(usage_host, "Part", ReadPart)
    few, many = (reads_of_a_list(tmp_path, number) for number in (200, 800))
    assert many <= 4.1 * few


def test_a_list_of_as_many_prompts_as_fit_into_a_small_request_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(usage_host, "MOST", 8000)
    # It took minutes while each part walked all others.
    assert reads_of_a_list(tmp_path, 8000)


@pytest.mark.parametrize(("prompts", "n"), [(2049, 1), (1025, 2), (1, 2049), (16, 129)])
def test_a_request_with_more_prompts_and_choices_than_the_engine_takes_at_a_time_is_refused(tmp_path, prompts, n):
    started = []

    async def endpoint(client, _receive, _send):
        running = [client.generate([], params(9, True, n), f"cmpl-{number}") for number in range(prompts - 1)]
        with pytest.raises(ValueError, match="at most 2048 prompts at a time, each of them n times, and this one has"):
            client.generate([], params(9, True, n), "cmpl-last")
        started.extend(running)

    assert counted(tmp_path, Client(output([1] * 30, 0, {0: [1]})), endpoint) == []
    assert len(started) == prompts - 1


LONG_FORMS = {
    "choices": {"choice": ["word"] * 40_000},
    "words": {"choice": ["a" * 10_000] * 14},
    "a schema": {"json": {"properties": {f"p{number}": {"enum": ["abc", None, 1]} for number in range(10_000)}}},
    "a schema as a text": {"json": '{"enum": ["a"' + ', "a"' * 40_000 + "]}"},
    "a regular expression": {"regex": "a|" * 70_000},
    "a grammar": {"grammar": 'root ::= "a"' + ' | "b"' * 30_000},
    "tools": {"structural_tag": "{}" * 70_000},
}


@pytest.mark.parametrize("field", ["structured_outputs", "guided_decoding"])
@pytest.mark.parametrize("form", LONG_FORMS)
def test_what_an_answer_has_to_follow_may_not_take_minutes_to_compile(tmp_path, form, field):
    async def endpoint(client, _receive, _send):
        client.generate([], with_form(field, {"json": {"type": "object"}, "choice": ["a"] * 1000}), "cmpl-first")

    async def too_long(client, _receive, _send):
        with pytest.raises(ValueError, match="too long: together 131072 characters"):
            client.generate([], with_form(field, LONG_FORMS[form]), "cmpl-long")

    engine = Client(output([1] * 30, 0, {0: [1]}))
    assert counted(tmp_path, engine, endpoint) == []
    assert counted(tmp_path, engine, too_long) == []


def with_form(field, form):
    given = params(9, True, 1)
    setattr(given, field, SimpleNamespace(**form))
    return given


def test_prompts_of_a_pooling_model_are_as_many_as_of_a_generating_one(tmp_path):
    async def endpoint(client, _receive, _send):
        for number in range(2048):
            client.encode([], None, f"embd-{number}")
        with pytest.raises(ValueError, match="2048"):
            client.encode([], None, "embd-2048")

    assert counted(tmp_path, Client(output([1] * 30, 0, {0: [1]})), endpoint) == []


def test_what_has_ended_leaves_its_place_to_the_next_part_of_a_request(tmp_path, monkeypatch):
    """As with the steps of a beam search, or the answers between calls of tools."""
    monkeypatch.setattr(usage_host, "MOST", 4)

    async def endpoint(client, _receive, send):
        for step in range(10):
            for each in [client.generate([], params(1, False, 2), f"cmpl-{step:016x}-beam-{n}") for n in range(2)]:
                async for _output in each:
                    pass
        for message in ENDED:
            await send(message)

    client = Client(output([1] * 30, 0, {0: [1]}))
    assert counted(tmp_path, client, endpoint) == [("complete", 30, 20)]


def test_what_goes_on_without_its_client_counts_once(tmp_path):
    async def endpoint(client, receive, send):
        running = client.generate([], params(9, True), "cmpl-1")
        await running.__anext__()
        await receive()
        await receive()
        async for _output in running:
            pass
        for message in ENDED:
            await send(message)

    outputs = output([1] * 30, 0, {0: [1]}, False), output(None, 0, {0: [1] * 8})
    assert counted(tmp_path, Client(*outputs, left={"cmpl-1": left_behind(0, 6)}), endpoint) == [("complete", 30, 9)]


@pytest.mark.parametrize(
    ("own", "prompt"),
    [
        ({}, 30),
        ({"prompt_token_ids": None, "prompt_embeds": [0.5] * 20}, 20),
        # A pooling model.
        ({"detokenizer": None}, 30),
    ],
)
def test_a_prompt_that_the_engine_computes_counts_before_its_first_token(tmp_path, own, prompt):
    async def endpoint(client, receive, _send):
        await leave(client.generate([], params(9, True), "cmpl-1"), receive)

    left = {"done": left_behind(0, 9, name="done"), "cmpl-1": left_behind(0, 0, is_prefilling=True, **own)}
    assert counted(tmp_path, Client(left=left), endpoint) == [("aborted", prompt, 0)]


def test_a_response_in_the_background_is_counted_when_it_ends(tmp_path):
    async def endpoint(client, _receive, send):
        async def response():
            async for _output in client.generate([], params(9, True), "resp-1"):
                await asyncio.sleep(0.01)

        task = asyncio.ensure_future(response())
        for message in ENDED:
            await send(message)
        assert not task.done()

    client = Client(output([1] * 30, 0, {0: [1]}, False), output(None, 0, {0: [1, 1]}))
    found = counted(tmp_path, client, endpoint)
    assert found[-1][0] == "complete" and [sum(each[n] for each in found) for n in (1, 2)] == [30, 3]


def test_a_websocket_is_counted(tmp_path):
    async def endpoint(client, receive, _send):
        async for _output in client.generate([], params(9, True), "rt-1"):
            pass
        await receive()
        await receive()

    client = Client(output([1] * 30, 0, {0: [1]}, False), output(None, 0, {0: [1, 1]}))
    assert counted(tmp_path, client, endpoint, "websocket") == [("complete", 30, 3)]


def test_an_answer_without_an_engine_is_uncounted(tmp_path):
    async def endpoint(_client, _receive, send):
        for message in ENDED:
            await send(message)

    assert counted(tmp_path, None, endpoint) == [("uncounted", 0, 0)]
    assert counted(tmp_path, Client(), endpoint) == [("uncounted", 0, 0)]
