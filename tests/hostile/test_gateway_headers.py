# SPDX-License-Identifier: GPL-3.0-or-later
"""A client tells engines what only operators, proxies and gateways may tell them."""

from __future__ import annotations

import os
import re
import socket

import pytest

from tests.fakes.gateways import HAPROXY, KEY, gateway
from tests.hostile.http2 import END_HEADERS, END_STREAM, HEADERS, Http2, frame, literal
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
# What vLLM 0.32.0 and its plugins, the middleware of this collection, and programs behind proxies read, and what nobody
# reads yet.
FORBIDDEN = [
    "Authorization", "Availability-Probe", "Cookie", "Endpoint-Load-Metrics-Format", "Forwarded", "Operator-Token",
    "Proxy", "Proxy-Authorization", "X-Amzn-SageMaker-Session-Id", "X-Api-Key", "X-Data-Parallel-Rank",
    "X-Forwarded-For", "X-Forwarded-Proto", "X-Gateway-Client", "X-Gateway-Models", "X-Gateway-Usage",
    "X-HTTP-Method-Override", "X-Model",
    "X-Original-URL", "X-Real-IP", "X-Some-Day", "X-Vllm-", "X-Vllm-Some-Day",
    "Operator_Token", "X_Gateway_Usage", "X-Vllm_Priority", "Content_Length", "Transfer_Encoding",
]  # fmt: skip
KEPT = {"traceparent": "00-1", "user-agent": "test", "x-session-id": "s1", "x-claude-code-session-id": "s2"}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    more = {"variables": {"gateway_tokens": True}, "options": {"tokens": True}}
    with engine() as server, gateway(tmp_path_factory.mktemp("headers"), [server.server_port], **more) as found:
        found.engine = server
        yield found


def arrived(found):
    return {name.lower(): value for name, value in found.engine.asked[-1][2].items()}


@pytest.mark.parametrize("spelt", [str.lower, str.upper, str.title], ids=["lower", "upper", "title"])
def test_no_header_for_operators_reaches_an_engine(one, spelt):
    headers = {spelt(name): "evil" for name in FORBIDDEN if name not in ("Authorization", "X-Api-Key")}
    assert one.ask("POST", CHAT, KEY, b"{}", **headers, **KEPT)[0] == 200
    got = arrived(one)
    assert "evil" not in "".join(got.values())
    assert {name: got[name] for name in KEPT} == KEPT
    assert got["x-gateway-usage"].startswith("gw alice - ")


@pytest.mark.parametrize(
    "names", ["X-Gateway-Usage, Baggage, X-Request-Id", "close, Content-Length", "Upgrade, HTTP2-Settings"]
)
def test_what_is_for_one_connection_ends_at_the_gateway(one, names):
    """A program behind it would drop the headers that Connection names, such as the one that counts."""
    more = {
        "TE": "trailers",
        "Trailer": "X-Gateway-Usage",
        "Keep-Alive": "x",
        "Expect": "odd",
        "HTTP2-Settings": "AAMA",
    }
    assert raw(one, {"Connection": names, **more})
    got = arrived(one)
    assert not {"te", "trailer", "keep-alive", "expect", "http2-settings"} & set(got)
    assert got.get("connection", "close") == "close" and got["x-gateway-usage"].startswith("gw alice - ")


def raw(found, headers):
    """Send a request with headers that a library would refuse; return whether it is answered."""
    with socket.create_connection(("127.0.0.1", found.port), timeout=20) as connection:
        lines = [f"POST {CHAT} HTTP/1.1", "Host: gw", f"Authorization: Bearer {KEY}", "Content-Length: 2"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", "{}"]).encode())
        return connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_none_does_over_http2(one):
    names = [name.lower() for name in FORBIDDEN if name not in ("Authorization", "X-Api-Key")]
    with Http2(one.port) as connection:
        headers = [("authorization", f"Bearer {KEY}"), *((name, "evil") for name in names for _twice in range(2))]
        assert connection.status(connection.request("POST", CHAT, headers, b"{}")) == 200
    assert "evil" not in "".join(arrived(one).values())


@pytest.mark.parametrize("most", [0, 64])
def test_none_does_behind_a_body(tmp_path, most):
    """The server of vLLM takes the trailers of a body for headers. A body with Content-Length has none."""
    with engine() as server, gateway(tmp_path, [server.server_port], variables={"gateway_max_body": most}) as found:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(("127.0.0.1", found.port), timeout=20) as connection:
            connection.sendall(head.encode() + b"2\r\n{}\r\n0\r\nX-Data-Parallel-Rank: 3\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 411")
        for body in (b"{}", b""):
            with Http2(found.port) as connection:
                stream = connection.request("POST", CHAT, [("authorization", f"Bearer {KEY}")], body, ends=False)
                block = literal("x-data-parallel-rank", "3")
                connection.socket.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
                assert connection.status(stream) == 411
        assert not [path for _method, path, *_more in server.asked if path == CHAT]


@pytest.mark.parametrize("value", ["-100", "0", "x", "-100, 5", ""])
def test_every_request_has_the_priority_of_the_gateway(one, value):
    # vLLM takes an integer in this header before the priority in a body (GenerateBaseServing._get_priority).
    for headers in ({}, {"X-Vllm-Priority": value}, {"x-vllm-priority": value}):
        assert one.ask("POST", CHAT, KEY, b'{"priority": -100}', **headers)[0] == 200
        assert arrived(one)["x-vllm-priority"] == "0"


@pytest.mark.parametrize(
    "value",
    [
        "___prefill_addr_10.0.0.1:1___decode_addr_10.0.0.1:1_x", "___decode_addr_10.0.0.1:21001_" + "0" * 32,
        "a___b", "a-beam-b", "-beam-", "x" * 65, "a b", "a/b", "\xff",
    ],
)  # fmt: skip
def test_an_id_with_an_address_a_mark_of_the_engine_or_of_another_form_is_replaced(one, value):
    assert one.ask("POST", CHAT, KEY, b"{}", **{"X-Request-Id": value})[0] == 200
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", arrived(one)["x-request-id"])


def test_an_id_of_a_client_is_kept_and_made_unique(one):
    found = set()
    for _n in range(2):
        one.ask("POST", CHAT, KEY, b"{}", **{"X-Request-Id": "job_7:a.b-c"})
        found.add(arrived(one)["x-request-id"])
    assert len(found) == 2 and all(re.fullmatch("job_7:a.b-c-[0-9a-f]{12}", each) for each in found)
