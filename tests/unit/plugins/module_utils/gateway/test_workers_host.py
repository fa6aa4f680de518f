# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections of workers that were replaced: real ones of the kernel, held by a /proc made for the test."""

from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.workers_host import replaced_sessions
from ansible_collections.baremetal.inference.plugins.module_utils.instance import sock_diag_host


def process(proc, pid, parent, opened=(), command="haproxy"):
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({command}) S {parent} {parent} 0 0")
    for number, each in enumerate(opened):
        os.symlink(f"socket:[{os.fstat(each.fileno()).st_ino}]", proc / str(pid) / "fd" / str(number))
    os.symlink("/dev/null", proc / str(pid) / "fd" / "99")


@pytest.fixture
def servers():
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("::1", 0), family=socket.AF_INET6) as two:
        yield one, two


@pytest.fixture
def connections(servers):
    made = [socket.create_connection(each.getsockname()[:2]) for each in servers for _number in range(3)]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def proc(tmp_path, connections):
    process(tmp_path, 100, 1)
    process(tmp_path, 120, 100, connections[:1])
    return tmp_path


def count(proc, servers, worker=120):
    return replaced_sessions(worker, {each.getsockname()[1] for each in servers}, str(proc))


@pytest.mark.parametrize("from_tables", [False, True])
def test_connections_of_workers_that_were_replaced(proc, servers, connections, monkeypatch, from_tables):
    if from_tables:
        monkeypatch.setattr(sock_diag_host, "asked", refused)
    process(proc, 110, 100, connections[1:3])
    process(proc, 111, 100, connections[3:4])
    # Another program of the same parent, and the worker of another HAProxy.
    process(proc, 112, 100, connections[4:5], "python3")
    process(proc, 130, 1, connections[5:])
    one, two = (each.getsockname()[:2] for each in servers)
    assert count(proc, servers) == {one: 2, two: 1}
    # Another port is that of no server.
    assert count(proc, servers[:1]) == {one: 2}


def refused(*_given):
    raise PermissionError(1, "not permitted")


def test_where_the_kernel_does_not_say_all_of_them_nothing_is_counted(proc, servers, connections, monkeypatch):
    # A table that is cut counted too few, and a server with requests was stopped.
    process(proc, 110, 100, connections[1:])
    monkeypatch.setattr(sock_diag_host, "asked", refused)
    monkeypatch.setattr(sock_diag_host, "_MOST_TABLE", 1)
    with pytest.raises(OSError, match="cannot be read, or has more"):
        count(proc, servers)


def test_none_were_replaced(proc, servers):
    assert count(proc, servers) == {}


def test_a_worker_without_a_master_has_none(proc, servers, connections):
    process(proc, 130, 1, connections)
    process(proc, 131, 1, connections)
    assert count(proc, servers, 131) == {}


def test_a_process_that_has_ended_has_none(proc, servers):
    assert count(proc, servers, 9999) == {}
