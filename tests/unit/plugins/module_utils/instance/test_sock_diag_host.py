# SPDX-License-Identifier: GPL-3.0-or-later
"""The sockets of a port, by the real kernel, and by its tables where it does not answer."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import sock_diag_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.sock_diag_host import listening, sockets

ODD = [
    b"\0" * 16,
    b"\x10",
    struct.pack("=IHHII", 500, 20, 0, 0, 0) + b"\0" * 60,
    struct.pack("=IHHII", 16, 99, 0, 0, 0),
]


@pytest.fixture(params=[("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("::", socket.AF_INET6)])
def connected(request):
    address, family = request.param
    with socket.socket(family) as server:
        server.bind((address, 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("::1" if address == "::1" else "127.0.0.1", port)) as client:
            yield server, client


def refused(*_given):
    raise PermissionError(1, "not permitted")


def test_the_kernel_and_its_tables_tell_the_same(connected, monkeypatch):
    server, client = connected
    port, here = server.getsockname()[1], client.getsockname()[1]
    told = sockets(port, here)
    # The listener, and the end that nobody has accepted yet; not the client's own.
    assert [row.listens for row in told] == [True, False]
    assert told[0].inode == os.fstat(server.fileno()).st_ino and {row.uid for row in told} == {os.geteuid()}
    assert (told[1].local[1], told[1].remote) == (port, sock_diag_host.plain(*client.getsockname()[:2]))
    monkeypatch.setattr(sock_diag_host, "asked", refused)
    assert [row._replace(group=0) for row in told] == sockets(port, here)


def test_nobody_listens_at_a_port_that_is_none(connected, monkeypatch):
    server, _client = connected
    assert len(listening(server.getsockname()[1])) == 1
    assert listening(0) == []
    monkeypatch.setattr(sock_diag_host, "asked", refused)
    assert listening(0) == []


def test_many_connections_of_the_port_are_not_in_the_answer():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(200)
        port = server.getsockname()[1]
        clients = [socket.create_connection(("127.0.0.1", port)) for _each in range(100)]
        assert len(sockets(port, clients[0].getsockname()[1])) == 2
        for client in clients:
            client.close()


@pytest.mark.parametrize("size", [None, 1 << 12])
def test_a_table_that_is_cut_or_missing_is_an_error_and_not_nobody(monkeypatch, tmp_path, size):
    # Any user makes the table as large as the ports allow: 456,000 connections of the loopback were 137 MB.
    monkeypatch.setattr(sock_diag_host, "asked", refused)
    monkeypatch.setattr(sock_diag_host, "NET", str(tmp_path))
    monkeypatch.setattr(sock_diag_host, "_MOST_TABLE", 1 << 10)
    if size:
        (tmp_path / "tcp").write_text("x" * size)
    with pytest.raises(OSError, match="cannot be read, or has more"):
        sockets(1, 2)


@pytest.mark.parametrize("answer", ODD)
def test_an_odd_answer_of_the_kernel_is_read_from_the_tables(monkeypatch, connected, answer):
    server, client = connected
    expected = [row._replace(group=0) for row in sockets(server.getsockname()[1], client.getsockname()[1])]
    monkeypatch.setattr(sock_diag_host, "asked", lambda *_given: answer)
    assert sockets(server.getsockname()[1], client.getsockname()[1]) == expected


def test_a_list_that_the_kernel_does_not_end_is_an_error(monkeypatch):
    monkeypatch.setattr(sock_diag_host, "_MOST_BYTES", 0)
    with pytest.raises(OSError, match="did not end"):
        sock_diag_host.asked(socket.AF_INET, 1, 0, 1 << 10)


def test_an_error_of_the_kernel_is_raised():
    with pytest.raises(OSError, match=r"No such file|not supported|Invalid"):
        sock_diag_host.asked(255, 1, 0, 1 << 10)
