# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_group import sockets_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance import sock_diag_host


def test_which_port_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert sockets_host.answers("127.0.0.1", server.getsockname()[1])
        closed = server.getsockname()[1]
    assert sockets_host.answers("127.0.0.1", closed)


def test_the_processes_of_a_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(sockets_host, "PROC", str(tmp_path))
    cgroups = {
        "1": "0::/system.slice/system-vllm.slice/vllm@big.service\n",
        "2": "0::/system.slice/system-vllm.slice/vllm@big.service/libpod-payload-1\n",
        "3": "0::/system.slice/system-vllm.slice/vllm@big-2.service\n",
        "4": "0::/system.slice/docker-abc123.scope\n",
        "5": "0::/system.slice/vllm-group@big.service\n",
        "6": "0::/user.slice/user-1000.slice/user@1000.service/docker-abc123.scope\n",
        "7": "0::/docker/abc123\n",
        "8": "0::/docker/abc1234\n",
        "self": "0::/system.slice/system-vllm.slice/vllm@big.service\n",
    }
    for name, text in cgroups.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(text)
    assert sorted(sockets_host.processes_of("big", "")) == ["1", "2"]
    assert sorted(sockets_host.processes_of("big", "abc123")) == ["1", "2", "4", "7"]


def test_own_sockets_are_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert inode in sockets_host.sockets_of(iter([str(os.getpid())]))


def refused(*_given):
    raise PermissionError(1, "not permitted")


@pytest.mark.parametrize("from_tables", [False, True])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_connections_are_counted_by_their_address_but_for_requests(monkeypatch, address, from_tables):
    if from_tables:
        monkeypatch.setattr(sock_diag_host, "asked", refused)
    own = str(os.getpid())
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        port = server.getsockname()[1]
        before = sockets_host.count_connections([own], 0).get(address, 0)
        with socket.create_connection((address, port)), server.accept()[0]:
            # Both ends are of this process; that at the served port is a request.
            assert sockets_host.count_connections([own], 0)[address] == before + 2
            assert sockets_host.count_connections([own], port)[address] == before + 1
            assert sockets_host.count_connections([], 0) == {}


def test_where_the_kernel_does_not_say_all_connections_no_host_seems_lost(monkeypatch):
    # Any user makes the table larger than it is read, and the watchdog ended vLLM on all hosts of the instance.
    monkeypatch.setattr(sock_diag_host, "asked", refused)
    monkeypatch.setattr(sock_diag_host, "_MOST_TABLE", 1 << 6)
    with pytest.raises(OSError, match="cannot be read, or has more"):
        sockets_host.count_connections([str(os.getpid())], 0)
