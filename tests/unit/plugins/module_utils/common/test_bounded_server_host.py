# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections have places, and each ends in time. The programs that use it: tests/hostile/test_gateway_programs.py."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import bounded_server_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.bounded_server_host import (
    BoundedServer,
    peer_of,
)

from tests.fakes.gateways import until


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            self.wfile.write(line)


class Short(BoundedServer):
    seconds = 1.0


@pytest.fixture(params=[BoundedServer])
def server(monkeypatch, request):
    monkeypatch.setattr(bounded_server_host, "PLACES", 3)
    monkeypatch.setattr(BoundedServer, "seconds", 60.0)
    with request.param(("127.0.0.1", 0), Echo) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.1,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def opened(server, source="127.0.0.1"):
    # Whoever has lost a place counts until its thread has seen it, and as many may leave as there are places.
    until(lambda: not server.leaving)
    connection = socket.create_connection(server.server_address, 5, source_address=(source, 0))
    connection.sendall(b"a\n")
    return connection


def has_ended(connection):
    try:
        return connection.recv(2) == b""
    except ConnectionError:
        return True


def test_one_too_many_gets_the_place_that_is_held_for_longest(server):
    kept = [opened(server) for _number in range(3)]
    assert [each.recv(2) for each in kept] == [b"a\n"] * 3
    with opened(server) as late:
        assert late.recv(2) == b"a\n" and has_ended(kept[0])
        assert len(server.taken) == 3
    for each in kept[1:]:
        each.sendall(b"a\n")
        assert each.recv(2) == b"a\n"
        each.close()
    until(lambda: not server.taken and not server.leaving)
    with opened(server) as again:
        assert again.recv(2) == b"a\n"
    until(lambda: not server.taken)
    assert all(server.free.acquire(blocking=False) for _number in range(3)) and not server.free.acquire(blocking=False)


def test_the_end_of_a_connection_is_no_line_in_the_journal(server, capsys):
    for number in range(9):
        connection = opened(server)
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    until(lambda: not server.taken and not server.leaving)
    assert capsys.readouterr().err == ""


def test_a_user_of_this_host_has_one_peer_whatever_its_addresses(server):
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(opened(server, "127.9.0.1"))
        asking = [stack.enter_context(opened(server)) for _number in range(2)]
        assert [each.recv(2) for each in (held, *asking)] == [b"a\n"] * 3
        assert stack.enter_context(opened(server, "127.9.0.2")).recv(2) == b"a\n" and has_ended(held)
        for each in asking:
            each.sendall(b"b\n")
            assert each.recv(2) == b"b\n"


def test_a_peer_takes_places_of_itself_only_while_it_has_most(server, monkeypatch):
    # As addresses of two other hosts.
    monkeypatch.setattr(bounded_server_host, "peer_of", str)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(opened(server, "127.0.0.9"))
        assert first.recv(2) == b"a\n"
        greedy = []
        for _number in range(20):
            greedy.append(stack.enter_context(opened(server)))
            assert greedy[-1].recv(2) == b"a\n"
        assert has_ended(greedy[0])
        first.sendall(b"b\n")
        assert first.recv(2) == b"b\n"


def test_a_connection_that_has_proven_itself_keeps_its_place(server):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(opened(server))
        assert first.recv(2) == b"a\n"
        server.kept.update(server.taken)
        for _number in range(10):
            assert stack.enter_context(opened(server)).recv(2) == b"a\n"
        first.sendall(b"b\n")
        assert first.recv(2) == b"b\n"


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", "loopback"),
        ("127.200.3.4", "loopback"),
        ("::ffff:127.0.0.2", "loopback"),
        ("::1", "loopback"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_the_addresses_of_a_host_are_one_peer(address, peer):
    assert peer_of(address) == peer


@pytest.mark.parametrize("server", [Short], indirect=True)
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
