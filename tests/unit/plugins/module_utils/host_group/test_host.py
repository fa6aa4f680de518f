# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watchdog reads of its host and does to it."""

from __future__ import annotations

import json
import os
import socket

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_group import host as host_module
from ansible_collections.baremetal.inference.plugins.module_utils.host_group.host import Host


def test_a_host_is_asked_at_the_port_that_it_answered_at(monkeypatch):
    asked = []
    monkeypatch.setattr(host_module, "answers", lambda _address, port: asked.append(port) or port == 22)
    host = Host("big", described())
    assert host.asked(["127.0.0.1"]) == {"127.0.0.1": True}
    assert host.asked(["127.0.0.1"]) == {"127.0.0.1": True}
    assert asked == [9, 22, 22]


def described(**more):
    return {"name": "big", "engine": "", "command": "", "tls": False, "listen": {}, "watched": [], "stall": 0, **more}


def test_only_a_host_with_a_router_asks_for_its_prefill_hosts():
    listed = {"prefill": ["10.0.0.3:8000", "[fd00::3]:8000"]}
    assert Host("big", described(**listed, router={"port": 8300})).prefill == {
        "10.0.0.3": "8000",
        "fd00::3": "8000",
    }
    assert Host("big", described(**listed)).prefill == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root closes connections of others")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_router_s_connections_with_a_silent_host_are_closed_and_no_others(address, capsys):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    servers = [socket.create_server((address, 0), family=family) for _number in range(2)]
    ports = [server.getsockname()[1] for server in servers]
    silent, other = (socket.create_connection((address, port), 5) for port in ports)
    entry = f"[{address}]:{ports[0]}" if ":" in address else f"{address}:{ports[0]}"
    host = Host("big", described(prefill=[entry], router={"port": 8300}))
    host.close_connections(address, host.prefill[address])
    assert f"{address} is silent: closed the router's connections with it (1)" in capsys.readouterr().out
    with pytest.raises(ConnectionError):
        silent.recv(1)
    other.settimeout(0.2)
    with pytest.raises(TimeoutError):
        other.recv(1)
    for each in (*servers, silent, other):
        each.close()


def test_connections_that_cannot_be_closed_are_told_once(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    host = Host("big", described(prefill=["10.0.0.3:8000"], router={"port": 8300}))
    for _time in range(3):
        host.close_connections("10.0.0.3", "8000")
    told = capsys.readouterr().out
    assert told.count("10.0.0.3 is silent, and the router's connections with it stay open: ") == 1 and "'ss'" in told


@pytest.fixture
def places(tmp_path, monkeypatch):
    for name in ("RUN_DIR", "GROUP_RUN_DIR", "CONFIG_DIR"):
        monkeypatch.setattr(host_module, name, str(tmp_path / name))
        (tmp_path / name / "big").mkdir(parents=True)
    return tmp_path


ODD = {
    "link": lambda path: path.symlink_to(path.parents[2] / "nologin"),
    "FIFO": os.mkfifo,
    "directory": os.mkdir,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("complete", [True, False])
def test_nothing_in_the_directory_of_vllms_user_is_followed(places, odd, complete):
    """A link to /run/nologin closed the host to everybody but root."""
    run = places / "RUN_DIR/big"
    for mark in ("watched", "ready", "withdrawn"):
        odd(run / mark)
    Host("big", described()).publish("one", complete)
    assert not (places / "nologin").exists()
    assert sorted(path.name for path in run.iterdir()) == ["ready", "watched", "withdrawn"]
    assert json.loads((places / "GROUP_RUN_DIR/big/state").read_text()) == {"invocation": "one", "complete": complete}


@pytest.mark.parametrize(
    ("config", "listens"), [("headless: true\n", False), ("port: 8001\n", True), ("port: x\n", False)]
)
def test_a_worker_answers_nothing(places, config, listens):
    (places / "CONFIG_DIR/big.yaml").write_text(config)
    assert (Host("big", described()).listening() is not None) == listens
