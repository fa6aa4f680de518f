# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's protocol for sockets that it passes on; tests/integration/test_gateway_ports_unit.py has a real systemd."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.passed_socket_host import listen

from tests.fakes.gateways import free_port

CODE = """
import os, sys
from ansible_collections.baremetal.inference.plugins.module_utils.common.passed_socket_host import listen
os.environ["LISTEN_PID"] = str(os.getpid())
opened = listen("127.0.0.1", int(sys.argv[1]))
opened.accept()[0].sendall(b"here")
"""


def answer(passed, port):
    """Return what a service answers at a port that systemd started with a socket, as descriptor 3."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LISTEN_FDS": "1"}
    words = [sys.executable, "-c", CODE, str(port)]

    def start():
        return subprocess.Popen(words, env=environment, preexec_fn=lambda: os.dup2(passed.fileno(), 3), pass_fds=[3])

    # Who connects while the service is down waits for it.
    with socket.create_connection(("127.0.0.1", port), 20) as opened, start():
        return opened.recv(10)


def test_the_port_stays_taken_while_the_service_is_down_and_the_next_process_gets_it():
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as passed:
        assert [answer(passed, port) for _start in range(2)] == [b"here", b"here"]


def test_a_socket_of_another_port_is_closed(monkeypatch):
    other, port = free_port(), free_port()
    with socket.create_server(("127.0.0.1", other)) as old:
        copy = old.dup()
        monkeypatch.setattr(
            "ansible_collections.baremetal.inference.plugins.module_utils.common.passed_socket_host._passed",
            lambda: [copy],
        )
        with listen("127.0.0.1", port) as opened:
            assert opened.getsockname() == ("127.0.0.1", port) and copy.fileno() == -1


@pytest.mark.parametrize("count", ["x", "", "-1", "1"])
def test_without_systemd_a_new_one_is_made(monkeypatch, count):
    monkeypatch.setenv("LISTEN_FDS", count)
    # Of another process: it was inherited.
    monkeypatch.setenv("LISTEN_PID", "1")
    port = free_port()
    with listen("127.0.0.1", port) as opened:
        assert opened.getsockname()[1] == port
