# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody without a key opens as many connections, and sends as many requests, as he can."""

from __future__ import annotations

import contextlib
import csv
import http.client
import os
import re
import socket
import ssl
import struct
import subprocess
import time

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, gateway, until
from tests.hostile.http2 import DATA, END_HEADERS, HEADERS, PREFACE, SETTINGS, Http2, frame, literal
from tests.hostile.other_host import FIRST, HERE, SECOND, other_host, there
from tests.hostile.worker import Worker
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def small_gateway(directory, memory_mib, tls=True, clients=None, **more):
    """A gateway on a host with little memory."""
    certificate = directory / "gateway.pem"
    subject = ["-subj", "/CN=gw", "-keyout", f"{certificate}.key", "-out", certificate]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject],
        check=True,
        capture_output=True,
    )
    variables = {"gateway_tls": "files" if tls else "off", "__gateway_host": {"memory_kib": memory_mib * 1024}, **more}
    with engine() as server, gateway(directory, [server.server_port], clients, variables=variables) as found:
        found.worker, found.engine = Worker(found), server
        yield found


def most(found):
    return int(re.search(r"(?m)^\s+maxconn (\d+)$", (found.directory / "haproxy.cfg").read_text())[1])


def opened(stack, port, number, source="127.0.0.1", data=b"P", wait=5, to="127.0.0.1"):
    """Open connections and send something over each; return them, but not those that the gateway has closed by then."""
    kept = []
    for _n in range(number):
        with contextlib.suppress(OSError):
            each = stack.enter_context(socket.create_connection((to, port), wait, (source, 0)))
            kept.append(each)
            each.sendall(data)
    time.sleep(1)
    return [each for each in kept if not closed(each)]


def closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def ask(found, source, seconds=HANGS):
    """Ask over TLS as a client from an address, which waits so long; return the status."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", found.port, timeout=seconds, context=context, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
        return connection.getresponse().status


@pytest.mark.parametrize(("memory_mib", "connections"), [(512, 819), (64, 256), (64 * 1024, 104_857)])
def test_the_memory_of_the_host_bounds_the_connections(tmp_path, memory_mib, connections):
    with small_gateway(tmp_path, memory_mib) as found:
        assert most(found) == connections
        # It starts where it may not open as many files, as in a container.
        assert f"Maxconn: {connections}\n" in found.tell("show info")
        assert ask(found, "127.0.0.1") == 200


# A part of a hello of TLS, and one of a request.
@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"P", b""])
def test_one_source_gets_a_quarter_of_the_connections_and_others_are_served(tmp_path, data):
    # None of them ends because it is silent.
    with small_gateway(tmp_path, 512, __gateway_silence=3600) as found, contextlib.ExitStack() as stack:
        before = found.worker.memory_mib()
        kept = opened(stack, found.port, 1000, data=data)
        until(lambda: sum(not closed(each) for each in kept) <= most(found) // 4)
        assert ask(found, "127.0.0.2") == 200
        assert found.worker.memory_mib() - before < 64


# Twenty seconds of waiting, and the attacks take more than two minutes in CI.
@pytest.mark.long
@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b""])
def test_many_sources_that_complete_no_handshake_keep_others_out_for_a_moment_only(tmp_path, data):
    with small_gateway(tmp_path, 512, __gateway_silence=4) as found, contextlib.ExitStack() as stack:
        for number in range(2, 7):
            opened(stack, found.port, 210, f"127.0.0.{number}", data)
        time.sleep(5)
        assert ask(found, "127.0.0.9", seconds=20) == 200


@pytest.mark.parametrize("body", [b'{"stream": true}', b'{"wait": true}'])
def test_a_client_may_wait_for_the_engine_longer_than_it_may_be_silent(tmp_path, body):
    with small_gateway(tmp_path, 512, tls=False, __gateway_silence=1) as found, Http2(found.port) as asking:
        found.engine.tokens, found.engine.pause = 2, 3
        stream = asking.request("POST", CHAT, [("authorization", f"Bearer {KEY}")], body)
        if b"wait" in body:
            asking.read(lambda: False, 3)
            found.engine.freed.set()
        started = time.monotonic()
        assert asking.finished(stream) and asking.statuses[stream] == 200
        assert b"wait" in body or time.monotonic() - started > 5
        found.engine.freed.clear()
        found.engine.pause = 2
        status, _headers, text = found.ask("POST", CHAT, KEY, b'{"stream": true}')
        assert status == 200 and text.count(b"data:") == 2


def flood(found, stack, connections, path, headers=(), source="127.0.0.1"):
    """Begin 100 requests over each connection of HTTP/2, and read no answer; return the peak of the gateway's MiB."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    named = (
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "x"),
        (":path", path),
        *headers,
        ("x", "y" * 8000),
    )
    head = b"".join(literal(name, value) for name, value in named)
    peak = 0
    for _n in range(connections):
        with contextlib.suppress(OSError):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", found.port), 5, (source, 0)))
            wrapped = stack.enter_context(context.wrap_socket(plain))
            wrapped.settimeout(0.3)
            wrapped.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
            for stream in range(1, 200, 2):
                wrapped.sendall(frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, 0, stream, b"x" * 16000))
        peak = max(peak, found.worker.memory_mib())
    return peak


@pytest.mark.parametrize("path", [CHAT, "/nothing"])
def test_streams_without_a_key_take_no_more_than_the_share_of_their_source(tmp_path, path):
    with small_gateway(tmp_path, 512) as found, contextlib.ExitStack() as stack:
        before = found.worker.memory_mib()
        assert flood(found, stack, most(found) // 4, path) - before < 64
        assert ask(found, "127.0.0.9") == 200


@pytest.mark.parametrize("path", [CHAT, "/nothing"])
def test_streams_of_one_key_take_no_more_than_half_of_the_memory(tmp_path, path):
    with small_gateway(tmp_path, 512) as found, contextlib.ExitStack() as stack:
        before, key = found.worker.memory_mib(), [("authorization", f"Bearer {KEY}")]
        assert flood(found, stack, most(found) // 4, path, key) - before < 256


def version():
    """Return HAProxy's version as numbers."""
    text = subprocess.run([HAPROXY, "-v"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def test_the_keys_of_a_team_hold_together_as_many_streams_as_one_key(tmp_path):
    if version() < (2, 8):
        pytest.skip("HAProxy has three counters for a request before 2.8")
    keys = [f"{number}-key-" * 8 for number in range(4)]
    clients = [client(f"user-{number}", key, team="research") for number, key in enumerate(keys)]
    with small_gateway(tmp_path, 512, clients=[client(), *clients]) as found, contextlib.ExitStack() as stack:
        for key in keys:
            flood(found, stack, 13, CHAT, [("authorization", f"Bearer {key}")])
        running = sum(map(int, re.findall(r"conn_cur=(\d+)", found.tell("show table gateway:limits"))))
        assert most(found) // 2 < running <= most(found) + 1
        # Others have theirs.
        assert ask(found, "127.0.0.9") == 200


def test_an_answer_that_nobody_reads_is_not_kept(tmp_path):
    with small_gateway(tmp_path, 512, __gateway_silence=2) as found, contextlib.ExitStack() as stack:
        flood(found, stack, 1, "/nothing")
        until(lambda: found.tell("show info").count("CurrConns: 0\n") or found.tell("show sess").count("fe=") <= 1, 25)


def test_the_port_for_metrics_takes_no_connections_of_clients(tmp_path):
    with small_gateway(tmp_path, 512) as found, contextlib.ExitStack() as stack:
        opened(stack, found.stats_port, most(found) + 50, data=b"GET /health HTTP/1.1\r\nX: ", wait=0.01)
        assert ask(found, "127.0.0.9", seconds=20) == 200
        # What has begun no whole request is closed, so that monitoring gets in again.
        until(lambda: "200" in http_health(found), 25)


def test_clients_take_no_connections_of_the_port_for_metrics(tmp_path):
    with small_gateway(tmp_path, 512) as found, contextlib.ExitStack() as stack:
        for number in range(2, 7):
            opened(stack, found.port, 210, f"127.0.0.{number}")
        assert "200" in http_health(found)


def refused_connections(found):
    """Return how many connections to the port for metrics HAProxy has refused."""
    rows = csv.DictReader(found.tell("show stat").removeprefix("# ").splitlines())
    return next(int(row["dcon"]) for row in rows if (row["pxname"], row["svname"]) == ("gateway:status", "FRONTEND"))


ANYBODY = {"gateway_stats_listen": "0.0.0.0"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("data", [b"", b"GET /health HTTP/1.1\r\nX: "])
def test_one_host_takes_half_of_the_port_for_metrics(tmp_path, data):
    with other_host(), small_gateway(tmp_path, 512, **ANYBODY) as found, contextlib.ExitStack() as stack:
        there(lambda: opened(stack, found.stats_port, 50, FIRST, data, to=HERE))
        until(lambda: refused_connections(found) >= 50 - 32)
        assert "200" in http_health(found) and "200" in there(lambda: http_health(found, SECOND, HERE))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("sources", [{"127.0.0.1": "127.0.0.1"}, {f"127.0.0.{n}": HERE for n in (2, 3)} | {HERE: HERE}])
def test_a_user_of_the_gateways_host_takes_half_of_it_with_all_of_its_addresses(tmp_path, sources):
    with other_host(), small_gateway(tmp_path, 512, **ANYBODY) as found, contextlib.ExitStack() as stack:
        for source, to in sources.items():
            opened(stack, found.stats_port, 40, source, to=to)
        # Those that have ended meanwhile leave room for 16 more.
        until(lambda: refused_connections(found) >= 40 * len(sources) - 32)
        assert "200" in there(lambda: http_health(found, FIRST, HERE))


def test_who_asks_the_port_for_metrics_keeps_no_connection(tmp_path):
    with small_gateway(tmp_path, 512) as found:
        with socket.create_connection(("127.0.0.1", found.stats_port), HANGS) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
            answer = b""
            while part := connection.recv(1000):
                answer += part
        assert answer.count(b"HTTP/1.1 200") == 1


def test_a_connection_to_the_port_for_metrics_has_one_request_over_http_2_too(tmp_path):
    with small_gateway(tmp_path, 512) as found, Http2(found.stats_port) as client:
        with contextlib.suppress(OSError):
            for _number in range(100):
                client.request("GET", "/health")
        assert not client.read(lambda: client.ended, 2) and not client.statuses


def http_health(found, source="127.0.0.1", to="127.0.0.1", seconds=20):
    """Return the head of the answer of the port for metrics, empty for none."""
    address = (to, found.stats_port)
    with contextlib.suppress(OSError), socket.create_connection(address, seconds, (source, 0)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return connection.recv(100).decode().split("\r\n")[0]
    return ""


def test_many_sources_take_no_more_than_half_of_the_memory(tmp_path):
    with small_gateway(tmp_path, 512) as found, contextlib.ExitStack() as stack:
        before = found.worker.memory_mib()
        # The gateway accepts no more than these, and the kernel lets the others wait.
        for number in range(2, 6):
            opened(stack, found.port, 220, f"127.0.0.{number}", b"\x16\x03\x01\x02\x00\x01")
        assert found.worker.memory_mib() - before < 256


def test_heads_without_a_key_take_a_bounded_memory(tmp_path):
    with small_gateway(tmp_path, 512, tls=False) as found, contextlib.ExitStack() as stack:
        before = found.worker.memory_mib()
        head = b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 60_000
        # Those above the bound wait in the kernel until others end.
        opened(stack, found.port, 1500, data=head)
        assert found.worker.memory_mib() - before < 256


UNREADABLE = {
    "no request": b"P\r\n\r\n",
    "old": b"GET /\r\n",
    "control character": b"GET / HTTP/1.1\r\nHost: a\r\nA\x01: b\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "no length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    "unknown encoding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 150 + b"\r\n",
    "no chunk": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "websocket without a version": b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "part of a head": b"GET / HTTP/1.1\r\nHost",
    "frames without sense": PREFACE + b"x" * 100,
}


@pytest.mark.parametrize("tls", [False, True])
def test_what_nobody_can_read_does_not_fill_the_journal(tmp_path, tls):
    with small_gateway(tmp_path, 512, tls=tls) as found:
        before = len(found.log.read_text().splitlines())
        for data in (*UNREADABLE.values(), b"\x16\x03\x01\x00\x05hello") * 5:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", found.port), 2) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)
        assert ask(found, "127.0.0.1") == 200 if tls else found.ask("GET", "/v1/models", KEY)[0] == 200
        until(lambda: 'path="/v1/models"' in found.log.read_text())
        assert len(found.log.read_text().splitlines()) - before == 1


def test_bodies_that_never_come_do_not_fill_the_journal(tmp_path):
    with small_gateway(tmp_path, 512, tls=False) as found, contextlib.ExitStack() as stack:
        block = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "gw"),
            (":path", CHAT),
            ("content-length", "9"),
        ]
        for _connection in range(3):
            opened_one = stack.enter_context(Http2(found.port))
            for stream in range(1, 161, 2):
                opened_one.socket.sendall(
                    frame(HEADERS, END_HEADERS, stream, b"".join(literal(*each) for each in block))
                )
        # They are refused after two seconds.
        time.sleep(3)
        assert found.log.read_text().count(f'path="{CHAT}"') <= found.constants["__gateway_logged_refusals"]


def test_refused_keys_do_not_fill_the_journal(tmp_path):
    with small_gateway(tmp_path, 512, tls=False) as found:
        lines = found.constants["__gateway_logged_refusals"]
        for number in range(10 * lines):
            assert found.ask("POST", CHAT, f"wrong-{number}")[0] == 401
            assert found.ask("GET", f"/nothing/{number}")[0] == 404
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        until(lambda: 'path="/v1/models"' in found.log.read_text())
        text = found.log.read_text()
        # Whoever has a key is logged.
        assert text.count("status=401") + text.count("status=404") <= lines
        assert text.count('client="alice"') == 1
