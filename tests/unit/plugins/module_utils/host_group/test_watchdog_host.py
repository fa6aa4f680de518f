# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog of a group, against processes that hold real TCP connections, and against a clock."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_group import host as host_module
from ansible_collections.baremetal.inference.plugins.module_utils.host_group import watchdog_host
from ansible_collections.baremetal.inference.plugins.module_utils.host_group.watch import Watch
from ansible_collections.baremetal.inference.plugins.module_utils.host_group.watchdog_host import Watchdog, check
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Listening
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import Unit

from tests.fakes.stopping_engine import stopping_engine

PEER = "10.0.0.2"
RUNNING = Unit("active", "running", "one")


def watch(*addresses, stall=0):
    found = Watch(list(addresses or [PEER]), stall)
    found.begin("one")
    return found


CLIENT = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
time.sleep(60)
"""


class Host(host_module.Host):
    """A host whose unit is one process of the test, and whose peer is this process."""

    def __init__(self, process, unit=RUNNING, **more):
        document = {"engine": "", "command": "", "watched": ["127.0.0.1"], **more}
        super().__init__("big", document)
        self.process, self.now, self.ended = process, unit, []

    def unit(self):
        return self.now

    def end(self):
        self.ended.append(self.now.invocation)


@pytest.fixture
def places(tmp_path, monkeypatch):
    for name in ("RUN_DIR", "GROUP_RUN_DIR", "CONFIG_DIR"):
        monkeypatch.setattr(host_module, name, str(tmp_path / name))
        (tmp_path / name / "big").mkdir(parents=True)
    monkeypatch.setattr(watchdog_host, "GROUP_RUN_DIR", str(tmp_path / "GROUP_RUN_DIR"))
    return tmp_path


@pytest.fixture
def peer(monkeypatch):
    """A process that is connected with this one, and the end of that connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen([sys.executable, "-c", CLIENT, str(server.getsockname()[1])], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"connected\n"
        end, _address = server.accept()
        monkeypatch.setattr(host_module, "processes_of", lambda _name, _container: iter([str(process.pid)]))
        yield process, end
        end.close()
        process.kill()
        process.wait()
        process.stdout.close()


def state(places):
    return json.loads((places / "GROUP_RUN_DIR/big/state").read_text())


def test_an_engine_that_hangs_in_the_first_step_of_a_request_is_ended(places, peer, monkeypatch):
    """vLLM's own figures are those of the last step, so nothing runs by them (seen on two H100 with NCCL)."""
    process, _end = peer
    with stopping_engine(places / "RUN_DIR/big") as engine:
        (places / "CONFIG_DIR/big.yaml").write_text(f"host: 127.0.0.1\nport: {engine.port}\n")
        host = Host(process)
        monkeypatch.setattr(host, "counts", lambda: {"127.0.0.1": 1})
        found = watch("127.0.0.1", stall=30)
        assert check(host, found, lambda: 0.0) == ""
        assert host.load() == (0, 10)
        engine.stopped = True
        with socket.create_connection(("127.0.0.1", engine.port), 20) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
            ends = time.monotonic() + 60
            while host.load() != (1, 10):
                assert time.monotonic() < ends, host.load()
                time.sleep(0.01)
            assert [check(host, found, lambda now=now: now) for now in (10.0, 29.0)] == ["", ""]
            assert check(host, found, lambda: 30.0) == "1 requests have run for 30 s without a token"
        assert host.ended == ["one"]


def test_the_whole_against_a_process_whose_peer_closes(places, peer, monkeypatch):
    process, end = peer
    ready = places / "RUN_DIR/big/ready"
    ready.touch()
    monkeypatch.setattr(host_module, "answers", lambda _address, _port: True)
    host, found, now = Host(process), watch("127.0.0.1"), 0.0
    assert check(host, found, lambda: now) == ""
    assert state(places) == {"invocation": "one", "complete": True}
    assert ready.exists()
    end.close()
    deadline = time.monotonic() + 60
    while host.counts().get("127.0.0.1") and time.monotonic() < deadline:
        time.sleep(0.05)
    now = 2.0
    assert check(host, found, lambda: now) == ""
    # Gateways see it at once.
    assert state(places) == {"invocation": "one", "complete": False}
    assert not ready.exists()
    now = 8.0
    assert check(host, found, lambda: now) == "no connection with 127.0.0.1 is left"
    assert host.ended == ["one"]


def test_gateways_see_the_instance_again_when_the_connections_are_back(places, peer):
    process, _end = peer
    (places / "RUN_DIR/big/withdrawn").touch()
    check(Host(process), watch("127.0.0.1"), lambda: 0.0)
    assert (places / "RUN_DIR/big/ready").exists()


@pytest.mark.parametrize(
    "unit",
    [
        Unit("inactive", "dead", ""),
        Unit("deactivating", "stop", "one"),
        Unit("activating", "auto-restart", "one"),
        Unit("failed", "failed", "one"),
    ],
    ids=lambda unit: unit.sub,
)
def test_a_unit_that_does_not_run_is_left_alone(places, peer, unit):
    process, end = peer
    host, found = Host(process), watch("127.0.0.1")
    check(host, found, lambda: 0.0)
    end.close()
    host.now = unit
    assert check(host, found, lambda: 100.0) == ""
    assert host.ended == []


def test_a_run_that_began_meanwhile_is_left_alone(places, peer, monkeypatch):
    process, _end = peer
    host, found = Host(process), watch("127.0.0.1")
    monkeypatch.setattr(host, "counts", lambda: {"127.0.0.1": 1})
    check(host, found, lambda: 0.0)

    def lost():
        host.now = Unit("activating", "start", "two")
        return {}

    found.missing["127.0.0.1"] = 0.0
    monkeypatch.setattr(host, "counts", lost)
    assert check(host, found, lambda: 100.0) == ""
    assert host.ended == []


@pytest.mark.parametrize(
    ("unit", "stall", "listening", "ends"),
    [
        (RUNNING, 30, True, True),
        (RUNNING, 0, True, False),
        # It warms up, and the first request compiles the model.
        (Unit("activating", "start-post", "one"), 30, True, False),
        # A worker has no figures.
        (RUNNING, 30, False, False),
    ],
    ids=["it hangs", "no time is set", "it starts", "a worker"],
)
def test_only_an_engine_that_has_started_can_hang(places, monkeypatch, unit, stall, listening, ends):
    host = Host(None, unit, watched=[])
    for name, found in (
        ("counts", {}),
        ("load", (1, 10)),
        ("listening", Listening("127.0.0.1", 1) if listening else None),
    ):
        monkeypatch.setattr(host, name, lambda found=found: found)
    found = Watch([], stall)
    assert check(host, found, lambda: 0.0) == ""
    assert bool(check(host, found, lambda: 100.0)) is ends
    assert host.ended == (["one"] if ends else [])


def test_a_silent_prefill_host_ends_nothing(places, monkeypatch):
    closed, answering = [], [True]
    host = Host(None, prefill=["10.0.0.3:8000"], router={"port": 8300}, watched=[])
    monkeypatch.setattr(host, "counts", dict)
    monkeypatch.setattr(host, "asked", lambda addresses: dict.fromkeys(addresses, answering[0]))
    monkeypatch.setattr(host, "close_connections", lambda *words: closed.append(words))
    found = Watch([], 0)
    assert check(host, found, lambda: 0) == ""
    answering[0] = False
    assert check(host, found, lambda: 10) == "" and closed == []
    assert check(host, found, lambda: 30) == "" and closed == [("10.0.0.3", "8000")]
    assert host.ended == []


def test_a_silent_host_that_was_not_connected_in_this_run_ends_nothing(places, monkeypatch):
    answering = [True]
    host = Host(None, watched=[PEER])
    monkeypatch.setattr(host, "counts", dict)
    monkeypatch.setattr(host, "asked", lambda addresses: dict.fromkeys(addresses, answering[0]))
    found = Watch([PEER], 0)
    assert check(host, found, lambda: 0) == ""
    answering[0] = False
    assert [check(host, found, lambda now=now: now) for now in (10, 30, 60)] == ["", "", ""]
    assert host.ended == []


@pytest.mark.parametrize(
    "error", [OSError("systemd does not answer"), KeyError("x"), subprocess.TimeoutExpired("ss", 30)]
)
def test_a_check_that_fails_is_reported_and_the_next_one_follows(places, monkeypatch, capsys, error):
    host = Host(None, watched=[])
    found = Watchdog(host, Watch([], 0))
    monkeypatch.setattr(host, "counts", lambda: (each for each in ()).throw(error))
    assert not found.loop.attempt(found.check)
    assert "The check of the hosts failed, and is tried again: " in capsys.readouterr().out
    monkeypatch.setattr(host, "counts", dict)
    assert found.loop.attempt(found.check)
    assert json.loads((places / "GROUP_RUN_DIR/big/worked").read_text())["watch"] > time.time() - 60
