# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody without a key opens as many connections, and sends as many requests, as he can."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import ssl
import subprocess
import time

import pytest

from tests.fakes.gateways import HAPROXY, KEY, gateway, until
from tests.hostile.worker import Worker
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def small_gateway(directory, memory_mib, tls=True):
    """A gateway on a host with little memory."""
    certificate = directory / "gateway.pem"
    subject = ["-subj", "/CN=gw", "-keyout", f"{certificate}.key", "-out", certificate]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject],
        check=True,
        capture_output=True,
    )
    variables = {"gateway_tls": "files" if tls else "off", "__gateway_host": {"memory_kib": memory_mib * 1024}}
    with engine() as server, gateway(directory, [server.server_port], variables=variables) as found:
        found.worker = Worker(found)
        yield found


def most(found):
    return int(re.search(r"(?m)^\s+maxconn (\d+)$", (found.directory / "haproxy.cfg").read_text())[1])


def opened(stack, port, number, source="127.0.0.1", data=b"P"):
    """Open connections and send something over each; return those that the gateway keeps."""
    kept = []
    for _n in range(number):
        with contextlib.suppress(OSError):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5, (source, 0)))
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


def ask(found, source):
    """Ask over TLS as a client from an address; return the status."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", found.port, timeout=10, context=context, source_address=(source, 0)
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
    with small_gateway(tmp_path, 512) as found, contextlib.ExitStack() as stack:
        before = found.worker.memory_mib()
        kept = opened(stack, found.port, 1000, data=data)
        assert len(kept) <= most(found) // 4
        assert ask(found, "127.0.0.2") == 200
        assert found.worker.memory_mib() - before < 64


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
