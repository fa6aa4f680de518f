# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog of a group, against processes that hold real TCP connections, and against a clock."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.stopping_engine import stopping_engine

SCRIPT = Path(__file__).resolve().parents[4] / "roles/vllm/files/vllm-group.py"
SPEC = importlib.util.spec_from_file_location("vllm_group", SCRIPT)
group = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = group
SPEC.loader.exec_module(group)

PEER = "10.0.0.2"
RUNNING = group.Unit("active", "running", "one")


def watch(*addresses, stall=0):
    found = group.Watch(list(addresses or [PEER]), stall)
    found.begin("one")
    return found


# --- what is decided ---


def test_a_lost_connection_ends_this_side_after_some_seconds():
    found = watch()
    assert found.connections(0, {PEER: 3}) == ""
    assert found.complete
    assert found.connections(2, {}) == ""
    assert not found.complete
    assert found.connections(7, {}) == ""
    assert found.connections(8, {}) == f"no connection with {PEER} is left"


def test_connections_that_come_back_in_time_end_nothing():
    found = watch()
    found.connections(0, {PEER: 3})
    found.connections(2, {})
    assert found.connections(4, {PEER: 1}) == ""
    assert found.connections(6, {}) == "" and found.connections(11, {}) == ""


def test_a_host_that_never_was_connected_is_waited_for():
    found = watch()
    assert [found.connections(now, {}) for now in (0, 100, 1000)] == ["", "", ""]
    assert not found.complete


def test_a_new_run_of_the_unit_is_not_blamed_for_the_one_before():
    found = watch()
    found.connections(0, {PEER: 3})
    found.connections(2, {})
    found.begin("two")
    assert found.connections(100, {}) == ""
    found.begin("two")
    found.connections(101, {PEER: 1})
    assert found.connections(103, {}) == ""


def test_all_hosts_are_needed():
    found = watch(PEER, "10.0.0.3")
    found.connections(0, {PEER: 3})
    assert not found.complete
    found.connections(1, {PEER: 3, "10.0.0.3": 1})
    assert found.complete
    found.connections(2, {PEER: 3})
    assert found.connections(8, {PEER: 3}) == "no connection with 10.0.0.3 is left"


def test_a_power_loss_is_seen_by_silence_and_a_short_cut_is_not():
    found = watch()
    found.connections(0, {PEER: 3})
    found.answers(0, {PEER: True})
    assert found.answers(2, {PEER: False}) == ""
    # A cut of ten seconds.
    assert found.answers(12, {PEER: False}) == ""
    assert found.answers(14, {PEER: True}) == ""
    assert found.answers(30, {PEER: False}) == ""
    assert found.answers(50, {PEER: False}) == f"{PEER} has not answered for 20 s"


def test_a_host_behind_a_firewall_that_never_answers_is_not_called_silent():
    found = watch()
    found.connections(0, {PEER: 3})
    assert [found.answers(now, {PEER: False}) for now in (0, 30, 300)] == ["", "", ""]


def test_a_prefill_host_is_silent_after_a_while_and_only_if_it_has_answered():
    found = watch()
    assert found.silences(0, {PEER: True, "10.0.0.3": False}) == {}
    assert found.silences(10, {PEER: False, "10.0.0.3": False}) == {}
    assert found.silences(29, {PEER: False, "10.0.0.3": False}) == {}
    assert found.silences(30, {PEER: False, "10.0.0.3": False}) == {PEER: 20}
    assert found.silences(32, {PEER: True, "10.0.0.3": False}) == {}


def test_requests_that_make_no_progress():
    found = watch(stall=300)
    assert found.progress(0, 2, 10) == ""
    assert found.progress(299, 2, 10) == ""
    assert found.progress(300, 2, 10) == "2 requests have run for 300 s without a token"
    assert found.progress(301, 2, 11) == ""
    assert found.progress(500, 0, 11) == ""
    assert watch(stall=0).progress(1e6, 2, -1.0) == ""


def test_an_engine_that_hangs_in_the_first_step_of_a_request_is_ended(places, peer, monkeypatch):
    """vLLM's own figures are those of the last step, so nothing runs by them (seen on two H100 with NCCL)."""
    process, _end = peer
    with stopping_engine(places / "RUN/big") as engine:
        host = Host(process, listen={"host": "127.0.0.1", "port": engine.port})
        monkeypatch.setattr(host, "counts", lambda: {"127.0.0.1": 1})
        found = watch("127.0.0.1", stall=30)
        assert group.check(host, found, lambda: 0.0) == ""
        assert host.load() == (0, 10)
        engine.stopped = True
        with socket.create_connection(("127.0.0.1", engine.port), 20) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
            ends = time.monotonic() + 20
            while host.load() != (1, 10):
                assert time.monotonic() < ends, host.load()
                time.sleep(0.01)
            assert [group.check(host, found, lambda now=now: now) for now in (10.0, 29.0)] == ["", ""]
            assert group.check(host, found, lambda: 30.0) == "1 requests have run for 30 s without a token"
        assert host.ended == ["one"]


# --- what is read of the kernel ---


def test_addresses_of_the_kernel_s_tables():
    assert group.address_of("0100007F" if sys.byteorder == "little" else "7F000001") == "127.0.0.1"
    mapped = "0000000000000000FFFF00000200000A" if sys.byteorder == "little" else "00000000000000000000FFFF0A000002"
    assert group.address_of(mapped) == PEER
    own = "B80D0120000000000000000001000000" if sys.byteorder == "little" else "20010DB8000000000000000000000001"
    assert group.address_of(own) == "2001:db8::1"


def test_requests_at_the_served_port_are_no_connections_of_the_group():
    row = (
        "  0: 0100000A:{port} 0200000A:9C40 01 00000000:00000000 00:00000000 00000000  1000 0 {inode} 1 0 20 4 30 10 -1"
    )
    lines = ["header", row.format(port="1F40", inode=7), row.format(port="733D", inode=8)]
    table = "\n".join([*lines, row.format(port="733D", inode=9), lines[2].replace(" 01 ", " 08 ")])
    if sys.byteorder == "little":
        assert group.connections(table, {"7", "8"}, 8000) == {PEER: 1}
        assert group.connections(table, {"7", "8"}, 0) == {PEER: 2}


CLIENT = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
time.sleep(60)
"""


class Host(group.Host):
    """A host whose unit is one process of the test, and whose peer is this process."""

    def __init__(self, process, unit=RUNNING, **more):
        document = {"engine": "", "command": "", "listen": {}, "tls": False, "watched": ["127.0.0.1"], **more}
        super().__init__("big", document)
        self.process, self.now, self.ended = process, unit, []

    def unit(self):
        return self.now

    def end(self):
        self.ended.append(self.now.invocation)


@pytest.fixture
def places(tmp_path, monkeypatch):
    for name in ("RUN", "STATE"):
        monkeypatch.setattr(group, name, tmp_path / name)
        (tmp_path / name / "big").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def peer(monkeypatch):
    """A process that is connected with this one, and the end of that connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen([sys.executable, "-c", CLIENT, str(server.getsockname()[1])], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"connected\n"
        end, _address = server.accept()
        monkeypatch.setattr(group, "processes_of", lambda _name, _container: iter([str(process.pid)]))
        yield process, end
        end.close()
        process.kill()
        process.wait()
        process.stdout.close()


def state(places):
    return json.loads((places / "STATE/big/state").read_text())


def test_the_whole_against_a_process_whose_peer_closes(places, peer, monkeypatch):
    process, end = peer
    ready = places / "RUN/big/ready"
    ready.touch()
    monkeypatch.setattr(group, "answers", lambda _address, _port: True)
    host, found, now = Host(process), watch("127.0.0.1"), 0.0
    assert group.check(host, found, lambda: now) == ""
    assert state(places) == {"invocation": "one", "complete": True}
    assert ready.exists()
    end.close()
    deadline = time.monotonic() + 10
    while host.counts().get("127.0.0.1") and time.monotonic() < deadline:
        time.sleep(0.05)
    now = 2.0
    assert group.check(host, found, lambda: now) == ""
    # Gateways see it at once.
    assert state(places) == {"invocation": "one", "complete": False}
    assert not ready.exists()
    now = 8.0
    assert group.check(host, found, lambda: now) == "no connection with 127.0.0.1 is left"
    assert host.ended == ["one"]


def test_gateways_see_the_instance_again_when_the_connections_are_back(places, peer):
    process, _end = peer
    (places / "RUN/big/withdrawn").touch()
    group.check(Host(process), watch("127.0.0.1"), lambda: 0.0)
    assert (places / "RUN/big/ready").exists()


@pytest.mark.parametrize(
    "unit",
    [
        group.Unit("inactive", "dead", ""),
        group.Unit("deactivating", "stop", "one"),
        group.Unit("activating", "auto-restart", "one"),
        group.Unit("failed", "failed", "one"),
    ],
    ids=lambda unit: unit.sub,
)
def test_a_unit_that_does_not_run_is_left_alone(places, peer, unit):
    process, end = peer
    host, found = Host(process), watch("127.0.0.1")
    group.check(host, found, lambda: 0.0)
    end.close()
    host.now = unit
    assert group.check(host, found, lambda: 100.0) == ""
    assert host.ended == []


def test_a_run_that_began_meanwhile_is_left_alone(places, peer, monkeypatch):
    process, _end = peer
    host, found = Host(process), watch("127.0.0.1")
    monkeypatch.setattr(host, "counts", lambda: {"127.0.0.1": 1})
    group.check(host, found, lambda: 0.0)

    def lost():
        host.now = group.Unit("activating", "start", "two")
        return {}

    found.missing["127.0.0.1"] = 0.0
    monkeypatch.setattr(host, "counts", lost)
    assert group.check(host, found, lambda: 100.0) == ""
    assert host.ended == []


def test_which_port_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert group.answers("127.0.0.1", server.getsockname()[1])
        closed = server.getsockname()[1]
    assert group.answers("127.0.0.1", closed)


def test_a_host_is_asked_at_the_port_that_it_answered_at(monkeypatch, peer):
    process, _end = peer
    asked = []
    monkeypatch.setattr(group, "answers", lambda _address, port: asked.append(port) or port == 22)
    host = Host(process)
    assert host.asked(["127.0.0.1"]) == {"127.0.0.1": True}
    assert host.asked(["127.0.0.1"]) == {"127.0.0.1": True}
    assert asked == [9, 22, 22]


def test_the_processes_of_a_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(group, "PROC", tmp_path)
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
    assert sorted(group.processes_of("big", "")) == ["1", "2"]
    assert sorted(group.processes_of("big", "abc123")) == ["1", "2", "4"]


def test_own_sockets_are_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.readlink(f"/proc/self/fd/{server.fileno()}")[8:-1]
        assert inode in group.sockets_of(iter([str(os.getpid())]))


def described(**more):
    return {"name": "big", "engine": "", "command": "", "tls": False, "listen": {}, "watched": [], "stall": 0, **more}


def test_only_a_host_with_a_router_asks_for_its_prefill_hosts():
    listed = {"prefill": ["10.0.0.3:8000", "[fd00::3]:8000"]}
    assert group.Host("big", described(**listed, router={"port": 8300})).prefill == {
        "10.0.0.3": "8000",
        "fd00::3": "8000",
    }
    assert group.Host("big", described(**listed)).prefill == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root closes connections of others")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_router_s_connections_with_a_silent_host_are_closed_and_no_others(address, capsys):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    servers = [socket.create_server((address, 0), family=family) for _number in range(2)]
    ports = [server.getsockname()[1] for server in servers]
    silent, other = (socket.create_connection((address, port), 5) for port in ports)
    entry = f"[{address}]:{ports[0]}" if ":" in address else f"{address}:{ports[0]}"
    host = group.Host("big", described(prefill=[entry], router={"port": 8300}))
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
    host = group.Host("big", described(prefill=["10.0.0.3:8000"], router={"port": 8300}))
    for _time in range(3):
        host.close_connections("10.0.0.3", "8000")
    told = capsys.readouterr().out
    assert told.count("10.0.0.3 is silent, and the router's connections with it stay open: ") == 1 and "'ss'" in told


def test_a_silent_prefill_host_ends_nothing(places, monkeypatch):
    closed, answering = [], [True]
    host = Host(None, prefill=["10.0.0.3:8000"], router={"port": 8300}, watched=[])
    monkeypatch.setattr(host, "counts", dict)
    monkeypatch.setattr(host, "asked", lambda addresses: dict.fromkeys(addresses, answering[0]))
    monkeypatch.setattr(host, "close_connections", lambda *words: closed.append(words))
    found = group.Watch([], 0)
    assert group.check(host, found, lambda: 0) == ""
    answering[0] = False
    assert group.check(host, found, lambda: 10) == "" and closed == []
    assert group.check(host, found, lambda: 30) == "" and closed == [("10.0.0.3", "8000")]
    assert host.ended == []


def test_a_silent_host_that_was_not_connected_in_this_run_ends_nothing(places, monkeypatch):
    answering = [True]
    host = Host(None, watched=[PEER])
    monkeypatch.setattr(host, "counts", dict)
    monkeypatch.setattr(host, "asked", lambda addresses: dict.fromkeys(addresses, answering[0]))
    found = group.Watch([PEER], 0)
    assert group.check(host, found, lambda: 0) == ""
    answering[0] = False
    assert [group.check(host, found, lambda now=now: now) for now in (10, 30, 60)] == ["", "", ""]
    assert host.ended == []
