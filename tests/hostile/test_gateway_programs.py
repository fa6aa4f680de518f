# SPDX-License-Identifier: GPL-3.0-or-later
"""A user of the gateway's host keeps as many connections to its programs as it can, with a line now and then."""

from __future__ import annotations

import contextlib
import os
import socket
import time

from ansible_collections.baremetal.inference.plugins.module_utils.common.bounded_server_host import PLACES, SECONDS

from tests.fakes.gateways import free_port, until
from tests.fakes.usage_service import service
from tests.integration.gateway_engines import agent


@contextlib.contextmanager
def counting(directory, port):
    (directory / "gw").mkdir()
    (directory / "gw" / "secret").write_text("", encoding="ascii")
    with service(directory, "gw", [], port) as process:
        yield process


@contextlib.contextmanager
def answering(directory, port):
    with agent(directory, port, [free_port()]) as process:
        yield process


def answers(port, path):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        connection.settimeout(5)
        return connection.recv(5) == b"HTTP/"
    return False


def test_who_sends_a_line_now_and_then_holds_no_program(tmp_path):
    asked = {answering: (free_port(), "/metrics"), counting: (free_port(), "/metrics/usage")}
    with contextlib.ExitStack() as stack:
        files, kept = {}, []
        for program, (port, path) in asked.items():
            process = stack.enter_context(program(tmp_path, port))
            until(lambda port=port, path=path: answers(port, path))
            files[f"/proc/{process.pid}/fd"] = len(os.listdir(f"/proc/{process.pid}/fd"))
            for _number in range(PLACES + 100):
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 1))
                    connection.sendall(f"GET {path} HTTP/1.1\r\n".encode())
                    kept.append(connection)
        # All places are taken, and HAProxy and monitoring get their answers at once all the same.
        assert [answers(port, path) for _number in range(20) for port, path in asked.values()].count(False) == 0
        ends = time.monotonic() + SECONDS + 3
        while time.monotonic() < ends:
            assert all(len(os.listdir(each)) <= before + PLACES + 20 for each, before in files.items())
            for connection in kept:
                with contextlib.suppress(OSError):
                    connection.sendall(b"a: b\r\n")
            time.sleep(0.5)
        assert all(len(os.listdir(each)) <= before + 20 for each, before in files.items())
        assert all(answers(port, path) for port, path in asked.values())
