# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections have places, and each ends in time. The programs that use it: tests/hostile/test_gateway_programs.py."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import bounded_server_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.bounded_server_host import BoundedServer


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            self.wfile.write(line)


class Short(BoundedServer):
    seconds = 1.0


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(bounded_server_host, "PLACES", 3)
    with Short(("127.0.0.1", 0), Echo) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.1,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def opened(server):
    connection = socket.create_connection(server.server_address, 5)
    connection.sendall(b"a\n")
    return connection


def test_one_too_many_is_closed_and_a_place_is_free_again(server):
    kept = [opened(server) for _number in range(3)]
    assert [each.recv(2) for each in kept] == [b"a\n"] * 3
    with opened(server) as late, contextlib.suppress(ConnectionError):
        assert late.recv(2) == b""
    for each in kept:
        each.close()
    while len(server.taken) == 3:
        time.sleep(0.01)
    with opened(server) as again:
        assert again.recv(2) == b"a\n"


def test_a_connection_ends_in_time_whatever_it_sends(server):
    with opened(server) as connection:
        began, got = time.monotonic(), b"-"
        while got and time.monotonic() - began < 20:
            try:
                got = connection.recv(2)
                connection.sendall(b"a\n")
            except ConnectionError:
                break
            time.sleep(0.05)
        assert time.monotonic() - began < 10
