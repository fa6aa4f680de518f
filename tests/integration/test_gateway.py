# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's template in a real HAProxy, in front of servers that answer everything; all on loopback."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, early_in_a_minute, gateway, plan, program, until
from tests.fakes.wheelhouse import run_module
from tests.integration.gateway_engines import engine
from tools.vllm.surface import routes

TOP = Path(__file__).resolve().parents[2]
ROUTES = (TOP / "tests/fixtures/vllm-routes/0.32.0.txt").read_text().split("\n")[:-1]
WRONG = "wrong-key-" + "fedcba9876543210" * 2
# What of vLLM's routes a client gets with its key, and what it asks instead of a placeholder.
SERVED = {
    "GET /v1/models", "POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses", "POST /v1/messages",
    "POST /v1/messages/count_tokens",
}  # fmt: skip

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A gateway in front of one engine, for tests that change nothing."""
    with engine() as server, gateway(tmp_path_factory.mktemp("gateway"), [server.server_port]) as found:
        found.engine = server
        yield found


def asked_as(route):
    method, path = route.split(" ", 1)
    return method, path.replace("{response_id}", "resp_1f3")


def table(found, route):
    """Return the answers without a key, with a wrong one and with the right one."""
    method, path = asked_as(route)
    return tuple(found.ask(method, path, key)[0] for key in (None, WRONG, KEY))


def test_the_list_of_routes_is_that_of_the_release():
    packages = sorted(TOP.glob(".cache/vllm/0.32.0-*/lib/python3*/site-packages/vllm"))
    if not packages:
        pytest.skip("needs .cache/vllm/0.32.0-* (tools/lab/content.sh brings it)")
    assert routes(packages[0]) == ROUTES
    assert set(ROUTES) >= SERVED


@pytest.mark.parametrize("route", ROUTES)
def test_what_a_client_gets_of_each_route_of_vllm(one, route):
    assert table(one, route) == ((401, 401, 200) if route in SERVED else (404, 404, 404))


@pytest.mark.parametrize("route", ROUTES)
def test_another_method_is_another_route(one, route):
    method, path = asked_as(route)
    other = "GET" if method == "POST" else "POST"
    if path == "/v1/responses/render" or f"{other} {path}" in SERVED:
        return
    for each in (other, "OPTIONS", "DELETE"):
        assert one.ask(each, path, KEY)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/../../pause", "/v1/models/..%2f..%2fpause", "/v1/models/%2e%2e/pause", "//pause", "/v1//models",
        "/V1/models", "/v1/models/", "/v1/models/.", "/v1/chat/completions/", "/v1/chat/completions/../../../pause",
        "/v1/responses/a/../../pause", "/v1/models;/pause", "/v1/models%00", "/v1/models%2f..%2f..%2fmetrics", "/",
    ],
)  # fmt: skip
def test_no_path_hides_another(one, path):
    before = len(one.engine.asked)
    assert one.ask("GET", path, KEY)[0] == 404
    assert len(one.engine.asked) == before


def test_a_model_is_asked_for_by_its_id(one):
    for path in ("/v1/models/openai/gpt-oss-20b", "/v1/models/openai%2Fgpt-oss-20b", "/v1/models?limit=1"):
        assert one.ask("GET", path, KEY)[0] == 200
        assert one.engine.asked[-1][1] == path


@pytest.mark.parametrize(
    ("target", "status"), [("{url}/v1/models", 200), ("{url}/pause", 404), ("*", 0), ("http:/pause", 0)]
)
def test_a_whole_address_in_the_request_line_is_its_path(one, target, status):
    before = len(one.engine.asked)
    with socket.create_connection(("127.0.0.1", one.port), timeout=HANGS) as connection:
        lines = [
            f"GET {target.format(url=one.url)} HTTP/1.1",
            f"Host: 127.0.0.1:{one.port}",
            f"Authorization: Bearer {KEY}",
        ]
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    # What is no path at all is refused with 400 or 404, as the version of HAProxy has it.
    assert int(answer.split()[1]) in ((status,) if status else (400, 404)), answer
    assert [path for _method, path, _headers, _length in one.engine.asked[before:]] == (
        ["/v1/models"] if status == 200 else []
    )


def test_refusals_have_the_shape_of_the_api(one):
    for key, path, kind in ((None, "/v1/models", "invalid_api_key"), (KEY, "/pause", "not_found")):
        _status, headers, body = one.ask("GET", path, key)
        assert headers["content-type"] == "application/json"
        assert json.loads(body)["error"]["code"] == kind and json.loads(body)["error"]["message"]


def test_the_key_goes_no_further_and_is_in_no_log(one):
    one.ask("GET", f"/v1/models?api_key={WRONG}", WRONG)
    one.ask("GET", "/v1/models?x=secret-in-a-query", KEY)
    _method, _path, headers, _length = one.engine.asked[-1]
    assert "authorization" not in {name.lower() for name in headers}
    until(
        lambda: (
            'client="alice" service=chat server=gw--chat-1 method=GET path="/v1/models" status=200'
            in one.log.read_text()
        )
    )
    log = one.log.read_text()
    assert KEY not in log and WRONG not in log and "secret-in-a-query" not in log
    assert KEY not in (one.directory / "haproxy.cfg").read_text()
    assert all(KEY not in path.read_text() for path in (one.directory / "maps").iterdir())


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_word_bearer_is_written_any_way(one, scheme):
    assert one.ask("GET", "/v1/models", None, None, Authorization=f"{scheme} {KEY}")[0] == 200


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer x {KEY}"])
def test_what_is_no_key(one, value):
    assert one.ask("GET", "/v1/models", None, None, Authorization=value)[0] == 401


@pytest.mark.parametrize("also", [{}, {"Authorization": "Basic eDp5"}, {"Authorization": f"Bearer {WRONG}"}])
def test_a_key_may_be_in_the_header_of_anthropics_clients(one, also):
    assert one.ask("POST", "/v1/messages", None, None, **{"x-api-key": KEY, "anthropic-version": "2023-06-01", **also})[
        0
    ] == (200)
    _method, _path, headers, _length = one.engine.asked[-1]
    assert {"x-api-key", "authorization"} & {name.lower() for name in headers} == set()
    assert "2023-06-01" in headers.values()


@pytest.mark.parametrize(
    "value", ["", WRONG, f"Bearer {KEY}", f"{KEY},{KEY}", hashlib.sha256(KEY.encode()).hexdigest()]
)
def test_what_is_no_key_of_anthropics_clients(one, value):
    assert one.ask("POST", "/v1/messages", None, None, **{"x-api-key": value})[0] == 401


def test_refusals_of_the_messages_api_have_its_form(one):
    large = {"Content-Length": "99999999"}
    for path, key, sent, status, kind in (
        ("/v1/messages", None, {}, 401, "authentication_error"),
        ("/v1/messages/count_tokens", WRONG, {}, 401, "authentication_error"),
        ("/v1/messages/batches", KEY, {}, 404, "not_found_error"),
        ("/v1/messages", KEY, large, 413, "request_too_large"),
    ):
        found, _headers, body = one.ask("POST", path, key, b"" if sent else None, **sent)
        said = json.loads(body)
        assert (found, said["type"], said["error"]["type"]) == (status, "error", kind), path
        assert said["error"]["message"]
    # Another path that only begins like it has the OpenAI API's form.
    assert "type" not in json.loads(one.ask("POST", "/v1/messagesx", KEY)[2])


def test_haproxys_own_errors_have_the_form_of_the_api_too(tmp_path):
    with gateway(tmp_path, [1]) as found:
        found.tell("set server chat/gw--chat-1 state maint")
        for path, form in (("/v1/messages", ("error", "overloaded_error")), ("/v1/responses", (None, "server_error"))):
            status, headers, body = found.ask("POST", path, KEY)
            said = json.loads(body)
            assert (status, headers["retry-after"], said.get("type"), said["error"]["type"]) == (503, "5", *form)


@pytest.mark.parametrize(
    ("more", "requested", "served"),
    [
        ({"args": {"runner": "pooling"}}, {}, {"POST /v1/embeddings", "POST /v1/rerank"}),
        ({}, {"tasks": ["audio"]}, {"POST /v1/audio/transcriptions", "POST /v1/audio/translations"}),
        ({}, {"tasks": ["rerank"]}, {"POST /v1/rerank"}),
    ],
)
def test_what_a_client_gets_follows_from_the_task_of_the_model(tmp_path, more, requested, served):
    options = {"services": {"chat": requested}}
    with engine() as server, gateway(
        tmp_path, [], plans={"chat": plan(server.server_port, **more)}, options=options
    ) as found:
        got = {route for route in ROUTES if table(found, route)[2] == 200}
        assert got == {"GET /v1/models", *served}


def test_a_prompt_of_five_megabytes_passes(one):
    body = json.dumps({"messages": "x" * 5_000_000}).encode()
    status, _headers, answer = one.ask("POST", "/v1/chat/completions", KEY, body)
    assert (status, json.loads(answer)["bytes"]) == (200, len(body))


def raw(found, head, body=b""):
    """Return the status and the body of the answer to the bytes of a request."""
    with socket.create_connection(("127.0.0.1", found.port), timeout=HANGS) as connection:
        # It may answer, and close, before it has read everything.
        with contextlib.suppress(OSError):
            connection.sendall(head + b"\r\n\r\n" + body)
        answer = http.client.HTTPResponse(connection)
        # Not to the end of the connection: HAProxy 3.0 waits for the rest of a body.
        answer.begin()
        text = answer.read()
    # HAProxy 3.0 itself refuses a header with NUL, with a page of its own.
    return answer.status, json.loads(text) if text.startswith(b"{") else text


def head_of(path, *lines, method="POST"):
    always = ["Host: gw", f"Authorization: Bearer {KEY}", "Connection: close"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *always, *lines]).encode("latin-1")


@pytest.mark.parametrize("length", ["67108865", "314572800", "9223372036854775807", "18446744073709551615"])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(one, length):
    before = len(one.engine.asked)
    status, body = raw(one, head_of("/v1/chat/completions", f"Content-Length: {length}"))
    assert status == 413 and "more than 64 MiB" in body["error"]["message"]
    assert len(one.engine.asked) == before


def test_a_body_whose_length_nobody_tells_is_refused(one):
    head = head_of("/v1/chat/completions", "Transfer-Encoding: chunked")
    status, body = raw(one, head, b"2\r\n{}\r\n0\r\n\r\n")
    assert status == 411 and body["error"]["code"] == "length_required"


def test_a_site_may_take_bodies_of_any_length(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port], variables={"gateway_max_body": 0}) as found:
        body = b"x" * 67_108_865
        assert json.loads(found.ask("POST", "/v1/completions", KEY, body)[2])["bytes"] == len(body)


def test_what_clients_say_of_themselves_goes_no_further(one):
    told = {
        "X-Forwarded-For": "10.0.0.1", "X-Forwarded-Host": "x", "Forwarded": "for=10.0.0.1", "X-Real-IP": "10.0.0.1",
        "X-data-parallel-rank": "3", "Cookie": "session=1", "Proxy-Authorization": "Basic eDp5", "X-Request-Id": "r1",
    }  # fmt: skip
    assert one.ask("GET", "/v1/models", KEY, None, **told)[0] == 200
    _method, _path, headers, _length = one.engine.asked[-1]
    assert {name.lower() for name in told} & {name.lower() for name in headers} == {"x-request-id"}


@pytest.mark.parametrize("value", ["a\0b", "\0", "a\x01", "\x7f", "a\x1b[31m"])
def test_a_header_with_a_control_character_is_refused(one, value):
    before = len(one.engine.asked)
    assert raw(one, head_of("/v1/models", f"X-Request-Id: {value}", method="GET"))[0] == 400
    assert len(one.engine.asked) == before


@pytest.mark.parametrize(
    ("line", "status"),
    [(f"X-Request-Id: {'x' * 15_000}", 200), (f"X-Request-Id: {'x' * 17_000}", 431), (f"X: {'x' * 60_000}", 431)],
)
def test_a_head_that_is_too_large_is_told_so(one, line, status):
    assert raw(one, head_of("/v1/models", line, method="GET"))[0] == status


def test_no_client_reads_or_cancels_the_response_of_another(one):
    before = len(one.engine.asked)
    assert (
        one.ask("GET", "/v1/responses/resp_1", KEY)[0] == one.ask("POST", "/v1/responses/resp_1/cancel", KEY)[0] == 404
    )
    assert len(one.engine.asked) == before


@pytest.mark.long
def test_tokens_come_as_they_are_made_for_half_a_minute(one):
    one.engine.tokens, one.engine.pause = 300, 0.1
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=HANGS)
    connection.request("POST", "/v1/chat/completions", b'{"stream":true}', {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    late = []
    for number in range(300):
        made, counted = answer.readline().split()[1:]
        assert int(counted) == number
        late.append(time.monotonic() - float(made))
        answer.readline()
    assert answer.read() == b""
    connection.close()
    # Most were on their way before the next one was made, and none waited for the end; a machine may be busy.
    assert sorted(late)[150] < 0.1 and max(late) < 10


def test_the_gateway_says_whether_it_has_servers(one):
    def health():
        connection = http.client.HTTPConnection("127.0.0.1", one.stats_port, timeout=HANGS)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert health() == (200, b"ok\n")
    tool, environ = program("gateway-tool", "health", "127.0.0.1", str(one.stats_port))
    assert subprocess.run(tool, env=environ, check=False).returncode == 0
    one.tell("set server chat/gw--chat-1 state maint")
    assert health() == (503, b"no server of chat\n")
    assert subprocess.run(tool, env=environ, check=False).returncode == 1
    status, headers, body = one.ask("GET", "/v1/models", KEY)
    assert (status, headers["retry-after"], json.loads(body)["error"]["code"]) == (503, "5", "no_server")
    one.tell("set server chat/gw--chat-1 state ready")
    assert health()[0] == 200


def test_prometheus_reads_what_each_server_did(one):
    connection = http.client.HTTPConnection("127.0.0.1", one.stats_port, timeout=HANGS)
    connection.request("GET", "/metrics")
    assert (
        'haproxy_server_status{proxy="chat",server="gw--chat-1",state="UP"} 1'
        in connection.getresponse().read().decode()
    )


def test_limits_of_a_client_are_its_own(tmp_path):
    clients = [client("few", rate=3), client("narrow", WRONG, concurrent=1), client("free", "f" * 32)]
    with engine() as server, gateway(tmp_path, [server.server_port], clients) as found:
        early_in_a_minute(20)
        assert [found.ask("GET", "/v1/models", KEY)[0] for _n in range(5)] == [200, 200, 200, 429, 429]
        status, headers, body = found.ask("GET", "/v1/models", KEY)
        assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        assert json.loads(body)["error"]["message"] == "Too many requests in a minute: this key may send 3."
        assert 0 <= int(headers["retry-after"]) - (60 - time.time() % 60) < 5
        waiting = threading.Thread(target=found.ask, args=("POST", "/v1/completions", WRONG, b'{"wait": 1}'))
        while server.running.acquire(blocking=False):
            pass
        waiting.start()
        assert server.running.acquire(timeout=HANGS)
        began = time.monotonic()
        status, headers, body = found.ask("GET", "/v1/models", WRONG)
        # It was looked at a second time.
        assert (status, headers["retry-after"]) == (429, "1") and time.monotonic() - began >= 0.05
        assert json.loads(body)["error"]["code"] == "concurrency_limit_exceeded"
        assert found.ask("GET", "/v1/models", "f" * 32)[0] == 200
        server.freed.set()
        waiting.join()
        # One after the other is not two at once, each over its own connection; a thread may get no processor.
        asked = [found.ask("GET", "/v1/models", WRONG)[0] for _n in range(1000)]
        assert set(asked) <= {200, 429} and asked.count(429) <= 2
        assert found.ask("GET", "/v1/models", "f" * 32)[0] == 200


def test_a_client_that_goes_away_keeps_no_server_busy(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=HANGS)
        connection.request("POST", "/v1/completions", b'{"wait": 1}', {"Authorization": f"Bearer {KEY}"})
        assert server.running.acquire(timeout=HANGS)
        assert found.stat("gw--chat-1", "scur") == "1"
        connection.close()
        until(lambda: found.stat("gw--chat-1", "scur") == "0")


def test_an_open_gateway_asks_for_no_key_and_lets_no_more_through(tmp_path):
    more = {"options": {"open": True, "clients": {}}}
    with engine() as server, gateway(tmp_path, [server.server_port], [], **more) as found:
        assert [found.ask("GET", path)[0] for path in ("/v1/models", "/metrics")] == [200, 404]
        # Its limit of a body holds without keys, too.
        assert found.ask("POST", "/v1/completions", None, b"", **{"Content-Length": "99999999"})[0] == 413


def test_a_prompt_that_is_too_much_is_told_so(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port], [client(rate=1)]) as found:
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert found.ask("POST", "/v1/chat/completions", KEY, b"x" * 200_000)[0] == 429


def test_clients_that_trust_the_ca_reach_the_gateway_by_its_names_over_either_http(tmp_path):
    names = ["localhost", "127.0.0.1"]
    made = run_module("gateway_certificate", ca_dir=str(tmp_path / "ca"), host="gw", names=names)
    assert (
        made["changed"]
        and not run_module("gateway_certificate", ca_dir=str(tmp_path / "ca"), host="gw", names=names)["changed"]
    )
    (tmp_path / "gateway.pem").write_text(Path(made["key"]).read_text() + Path(made["certificate"]).read_text())
    more = {"options": {"tls": "own"}, "variables": {"gateway_tls": "own"}}
    with engine() as server, gateway(tmp_path, [server.server_port], **more) as found:
        # The key is in its own file: no command line has it.
        (tmp_path / "curl").write_text(f'header = "Authorization: Bearer {KEY}"\n')
        for name in names:
            for version in ("--http1.1", "--http2"):
                words = [
                    "curl",
                    "-sS",
                    version,
                    "--cacert",
                    tmp_path / "ca/ca.crt",
                    "-K",
                    tmp_path / "curl",
                    "-w",
                    " %{http_version}",
                ]
                done = subprocess.run(
                    [*words, f"https://{name}:{found.port}/v1/models"], check=True, capture_output=True, text=True
                )
                assert done.stdout.split(" ")[-1] == version.removeprefix("--http")
        large = tmp_path / "large"
        with large.open("wb") as file:
            file.truncate(68_000_000)
        # Over HTTP/2 nothing tells whether a body follows.
        curl = [
            "curl",
            "-sS",
            "--http2",
            "--cacert",
            tmp_path / "ca/ca.crt",
            "-K",
            tmp_path / "curl",
            "-w",
            "%{http_code}",
        ]
        curl += ["-o", "/dev/null", f"https://localhost:{found.port}/v1/completions"]
        for words, sent, status in (
            # A trailer may come behind an empty body too.
            (["-X", "POST"], "", "411"),
            (["-X", "POST", "-H", "Content-Length: 0"], "", "200"),
            (["-T", "-", "-X", "POST"], "{}", "411"),
            (["-d", "{}"], "", "200"),
            (["-d", "{}", "-H", "Content-Length:"], "", "411"),
        ):
            done = subprocess.run([*curl, *words], check=True, capture_output=True, text=True, input=sent)
            assert done.stdout == status
        done = subprocess.run([*curl, "--data-binary", f"@{large}"], check=True, capture_output=True, text=True)
        assert done.stdout == "413"
        body = tmp_path / "prompt"
        body.write_bytes(b"x" * 5_000_000)
        words = [
            "curl",
            "-sS",
            "--http2",
            "--cacert",
            tmp_path / "ca/ca.crt",
            "-K",
            tmp_path / "curl",
            "--data-binary",
            f"@{body}",
        ]
        done = subprocess.run(
            [*words, f"https://localhost:{found.port}/v1/completions"], check=True, capture_output=True, text=True
        )
        assert json.loads(done.stdout)["bytes"] == 5_000_000
        refused = subprocess.run(
            ["curl", "-sS", f"https://localhost:{found.port}/v1/models"], check=False, capture_output=True
        )
        assert refused.returncode == 60
