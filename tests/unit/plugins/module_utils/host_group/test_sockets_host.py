# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket

from ansible_collections.baremetal.inference.plugins.module_utils.host_group import sockets_host


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
        "self": "0::/system.slice/system-vllm.slice/vllm@big.service\n",
    }
    for name, text in cgroups.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(text)
    assert sorted(sockets_host.processes_of("big", "")) == ["1", "2"]
    assert sorted(sockets_host.processes_of("big", "abc123")) == ["1", "2", "4"]


def test_own_sockets_are_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.readlink(f"/proc/self/fd/{server.fileno()}")[8:-1]
        assert inode in sockets_host.sockets_of(iter([str(os.getpid())]))
