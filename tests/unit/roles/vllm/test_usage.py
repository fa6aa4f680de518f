# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role's middleware counts for gateways, in front of a server that answers as vLLM does."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import until

sys.path.append(str(Path(__file__).resolve().parents[4] / "roles/vllm/files"))
import vllm_usage

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
    return engine.server.config.app.app.app.records.directory


def test_embeddings_are_counted_without_parsing_them(engine):
    ask(engine, "/v1/embeddings", {"model": "e", "input": "word " * 9})
    (found,), _after = records(engine)
    assert (found["model"], found["prompt"], found["completion"]) == ("e", 9, 0)


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
    assert counted == plain
    assert counted.count(b'"choices":[]') == last and (counted.count(b'"usage":{"prompt') == 4 + last) == each
    assert counted.endswith(b"data: [DONE]\n\n")
    assert len(records(engine)[0]) == 1


@pytest.mark.parametrize("cut", [b"", b'"prompt_tokens":7,"comp', b'"prompt_tokens":7,"d":{"x":1'])
def test_a_chunk_that_is_cut_off_is_passed_on_and_changes_no_count(tmp_path, cut):
    sent, records = [], vllm_usage.Records(str(tmp_path))

    async def send(message):
        sent.append(message.get("body", b""))

    answer = vllm_usage.Answer(CHAT, b"gw1 alice research", records, None, send)
    answer.asked_last = answer.asked_each = False
    head = b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"x"}}]'
    whole = head + b',"usage":{"prompt_tokens":7,"completion_tokens":3},"metrics":null}\n\n'
    broken = head + b',"usage":{' + cut

    async def run():
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await answer.send(start)
        for body, more in ((whole, True), (broken, False)):
            await answer.send({"type": "http.response.body", "body": body, "more_body": more})
        answer.end()

    asyncio.run(run())
    assert sent == [b"", head + b',"metrics":null}\n\n', broken]
    (line,) = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert (line["state"], line["prompt"], line["completion"]) == ("aborted", 7, 3)


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


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'"stream"', b"\0", b'{"stream": {}', b"[" * 100_000 + b'"stream"']
)
def test_a_body_that_is_no_request_is_left_to_vllm(body):
    assert vllm_usage.with_usage(body) == (body, True, True)


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
    assert (found["state"], found["completion"]) == ("aborted", 0)


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


def test_an_instance_that_ends_lets_no_gateway_wait(engine, tmp_path):
    (tmp_path / "chat/closed").touch()
    started = time.monotonic()
    records(engine, "", 5)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("query", ["after=x", "after=../../etc/passwd:0", "wait=nan&after=a:-1", "wait=1e9", "%00=1"])
def test_a_query_that_makes_no_sense_reads_from_the_start(engine, query):
    ask(engine, CHAT, request(1))
    status, text = ask(engine, f"/gateway/usage?{query}", b"", {}, "GET")
    assert status == 200 and text.count(b'"number":1,') == 1


def test_files_are_bounded_and_a_gap_shows_in_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_usage, "FILE_BYTES", 200)
    monkeypatch.setattr(vllm_usage, "FILES", 3)
    found = vllm_usage.Records(str(tmp_path / "usage"))
    for number in range(50):
        found.add({"at": number, "client": "c" * 40})
    assert len(found.names()) == 3
    lines = [json.loads(line) for line in found.read({}).splitlines()]
    numbers = [line["number"] for line in lines if "number" in line]
    assert numbers == list(range(numbers[0], 51)) and numbers[0] > 30


def test_a_full_disk_fails_no_request_and_the_number_counts_on(tmp_path, monkeypatch, capsys):
    found = vllm_usage.Records(str(tmp_path / "usage"))
    found.add({"a": 1})
    write = os.write

    def full(_file, _text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vllm_usage.os, "write", full)
    found.add({"a": 2})
    found.add({"a": 3})
    monkeypatch.setattr(vllm_usage.os, "write", lambda file, text: write(file, text[:9]))
    found.add({"a": 4})
    monkeypatch.setattr(vllm_usage.os, "write", write)
    found.add({"a": 5})
    lines = found.read({}).splitlines()
    assert lines[1] == b'{"number":1,"a":1}' and lines[-1] == b'{"number":5,"a":5}'
    assert capsys.readouterr().out.count("No space left on device") == 1


def test_a_file_that_somebody_removed_is_made_again(tmp_path):
    found = vllm_usage.Records(str(tmp_path / "usage"))
    found.add({"a": 1})
    (tmp_path / "usage" / found.names()[0]).unlink()
    found.add({"a": 2})
    assert b'"number":2' in found.read({})


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 5, "completion_tokens": None}, (5, 0, 0)),
        ({"prompt_tokens": "5", "prompt_tokens_details": None}, (0, 0, 0)),
        ({"input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4}, (5, 3, 4)),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 4}, (5, 3, 4)),
        ({"seconds": 3, "type": "duration"}, None),
        (None, None),
    ],
)
def test_tokens_are_read_in_the_form_of_each_api(usage, tokens):
    assert vllm_usage.tokens_of(usage) == tokens


def test_what_tools_of_a_client_are_called_is_not_the_usage(engine):
    fake = {"usage": {"input_tokens": 0, "output_tokens": 0}}
    tools = [{"type": "function", "parameters": fake}]
    for stream in (False, True):
        ask(engine, "/v1/responses", request(4, stream=stream, max_output_tokens=4, tools=tools))
    assert [each["completion"] for each in records(engine)[0]] == [4, 4]
