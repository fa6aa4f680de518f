# SPDX-License-Identifier: GPL-3.0-or-later
"""One id of a request through the gateway, the engine and the record of its tokens, and a log of JSON."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import uuid

import pytest

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, free_port, gateway, plan, until
from tests.integration.test_gateway_usage import service

CHAT = "/v1/chat/completions"
WRONG = "wrong-key-" + "fedcba9876543210" * 2
NAMES = {
    "at", "id", "client", "team", "service", "server", "method", "path", "status", "end", "request_bytes",
    "answer_bytes", "queue_ms", "connect_ms", "first_ms", "total_ms", "from",
}  # fmt: skip

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


@contextlib.contextmanager
def logged(directory, **more):
    """Yield a gateway that logs JSON, and its engine."""
    with counted_engine(directory / "run") as server:
        plans = {"chat-1": plan(server.port, models=("m",)), **more.pop("plans", {})}
        words = more.pop("words", {"gateway_access_log": "json"})
        keys = [client(team="research")]
        with gateway(directory, [server.port], keys, name="gw1", plans=plans, variables=words, **more) as found:
            until(lambda: found.state("gw--chat-1") == "UP")
            yield found, server


def lines(found):
    """Return the lines of JSON of the gateway; those of HAProxy itself begin with a bracket."""
    return [json.loads(line) for line in found.log.read_text().splitlines() if line.startswith("{")]


def line_of(found, request_id):
    until(lambda: any(line["id"] == request_id for line in lines(found)))
    (line,) = [line for line in lines(found) if line["id"] == request_id]
    return line


def ask(found, key=KEY, path=CHAT, headers=(), body=None, method="POST"):
    """Return the id of a request in its answer, and the status; a header may be there twice."""
    connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
    data = body or json.dumps({"model": "m", "messages": "word " * 3, "max_tokens": 5}).encode()
    connection.putrequest(method, path)
    for name, value in [("Authorization", f"Bearer {key}"), ("Content-Length", str(len(data))), *headers]:
        connection.putheader(name, value)
    connection.endheaders(data)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.headers["X-Request-Id"], answer.status


def test_one_id_is_in_the_answer_the_engine_and_both_logs(tmp_path):
    port = free_port()
    options = {"tokens": True, "tokens_port": port, "clients": {"alice": {"team": "research"}}, "teams": {}}
    usage = tmp_path / "usage.log"
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(usage.open("w"))
        found, server = stack.enter_context(logged(tmp_path, options=options))
        stack.enter_context(service(tmp_path, "gw1", [server], port, output=log, log=True))
        made, status = ask(found)
        assert status == 200 and str(uuid.UUID(made)) == made
        _path, _request, headers = server.requests[-1]
        assert headers[b"x-request-id"].decode() == made
        line = line_of(found, made)
        assert set(line) == NAMES
        assert (line["client"], line["team"], line["service"], line["server"], line["path"], line["status"]) == (
            "alice", "research", "chat", "gw--chat-1", CHAT, 200
        )  # fmt: skip
        assert 0 <= line["first_ms"] <= line["total_ms"] < 60_000 and line["at"] > 1_700_000_000
        text = until(lambda: [text for text in usage.read_text().splitlines() if text.startswith("{")])
        assert json.loads(text[0]) == {
            "id": made, "client": "alice", "team": "research", "model": "m", "aborted": 0, "uncounted": 0,
            "prompt": 3, "cached": 1, "completion": 5,
        }  # fmt: skip
        assert "word" not in found.log.read_text() + usage.read_text()


def test_an_id_of_the_client_begins_the_one_of_the_request_which_no_other_has(tmp_path):
    with logged(tmp_path) as (found, server):
        ids = [ask(found, headers=[("X-Request-Id", "trace:1_a.b-C")])[0] for _request in range(2)]
        assert all(re.fullmatch(r"trace:1_a\.b-C-[0-9a-f]{12}", found_id) for found_id in ids) and ids[0] != ids[1]
        assert [headers[b"x-request-id"].decode() for _path, _request, headers in server.requests[-2:]] == ids
        assert line_of(found, ids[0])["client"] == "alice"
        for odd in ('a"b', "a b", "x" * 65, "", "a%b", "\xe4", "a,b"):
            made = ask(found, headers=[("X-Request-Id", odd)])[0]
            assert str(uuid.UUID(made)) == made, odd
        made = ask(found, headers=[("X-Request-Id", "one"), ("X-Request-Id", "two")])[0]
        assert str(uuid.UUID(made)) == made
        assert server.requests[-1][2][b"x-request-id"].decode() == made


def test_what_is_refused_has_an_id_too_and_each_line_is_json_without_a_key(tmp_path):
    with counted_engine(tmp_path / "other") as other:
        plans = {"vec-1": plan(other.port, models=("v",), of="vec")}
        with logged(tmp_path, plans=plans) as (found, _server):
            made, status = ask(found, key=WRONG)
            assert status == 401 and line_of(found, made)["client"] == "-"
            made, status = ask(found, path='/v1/"pause\\')
            assert status in (400, 404)
            for model in ('m"}', "m\\", "\u00e4\u0001", "x" * 300):
                made, status = ask(found, body=json.dumps({"model": model, "max_tokens": 1}).encode())
                assert status == 404 and set(line_of(found, made)) == {*NAMES, "model"}
            made, status = ask(found, body=b'{"model":"m\xff\xfe"}')
            assert status == 404 and line_of(found, made)["status"] == 404
            text = found.log.read_text()
            assert KEY not in text and WRONG not in text


@pytest.mark.parametrize("access_log", ["json", "text"])
def test_no_client_makes_a_line_too_long_to_be_whole(tmp_path, access_log):
    """HAProxy cuts a line that is too long, and what is behind the cut is in no log."""
    long = {"headers": [("X-Model", "\u00c3\u00a4" * 128), ("X-Request-Id", "i" * 64)]}
    paths = [{"path": "/v1/responses/<id>", "methods": ["GET"]}]
    with counted_engine(tmp_path / "other") as other:
        plans = {"vec-1": plan(other.port, models=("v",), of="vec")}
        words = {"gateway_access_log": access_log}
        with logged(tmp_path, plans=plans, options={"paths": paths}, words=words) as (found, _server):
            made = [
                ask(found, path="/v1/responses/" + "~" * 9, method="GET", **long),
                ask(found, path="/v1/responses/" + "a" * 9000, method="GET", **long),
                ask(found, path="/v1/models/" + "a" * 9000, method="GET"),
                ask(found, path="/v1/" + '"' * 9000, method="PUT", **long),
                ask(found, method="P" * 9000, **long),
                ask(found, key=WRONG, method="P" * 9000),
            ]
            assert {status for _id, status in made} <= {401, 404}
            for request_id, status in made:
                if access_log == "json":
                    assert line_of(found, request_id)["status"] == status
                else:
                    until(lambda each=request_id: f" id={each}\n" in found.log.read_text())


def test_a_line_of_text_has_the_id_that_the_engine_and_the_client_get(tmp_path):
    with counted_engine(tmp_path / "run") as server, gateway(tmp_path, [server.port]) as found:
        until(lambda: found.state("gw--chat-1") == "UP")
        ids = [ask(found, headers=[("X-Request-Id", "own")])[0] for _request in range(2)]
        assert all(re.fullmatch(r"own-[0-9a-f]{12}", found_id) for found_id in ids) and ids[0] != ids[1]
        assert [headers[b"x-request-id"].decode() for _path, _request, headers in server.requests[-2:]] == ids
        until(lambda: re.search(rf'client="alice" service=chat .* id={ids[1]}$', found.log.read_text(), re.MULTILINE))
        made, status = ask(found, key=WRONG)
        assert status == 401 and str(uuid.UUID(made)) == made
        until(lambda: f" id={made}" in found.log.read_text())
