# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas that follow the load: two real HAProxys with their agents, the door of a host, and stand-in engines.

Only systemd is replaced here: a start takes a second, and a stop waits for the running requests.
test_scale_unit.py has the real one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import scale_door_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.engine_secret import door_keys
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayError

from tests.fakes.gateways import (
    HAPROXY,
    KEY,
    RunningGateway,
    client,
    free_port,
    gateway,
    plan,
    program,
    render,
    until,
)
from tests.integration import scaled_engine
from tests.integration.scaled_engine import ScaledEngine

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]

SECRET = "s" * 40
# The agent with another patience: ten minutes are too long for a test.
AGENT = """
import runpy, sys
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import scale
scale.DOWN_AFTER = float(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextlib.contextmanager
def start_agent(
    running: RunningGateway, doors: dict[str, str], down_after: float, name: str = "gw", fixed: Any = ()
) -> Any:
    """Yield the process of a gateway's agent; ``fixed`` are instances that always serve."""
    variables = {
        **running.constants, "__gateway_plan": running.decided, "gateway_address": "",
        "gateway_agent_port": running.agent_port, "gateway_check_interval": 1, "gateway_stuck_after": 60,
        "gateway_probe_after": 0, "gateway_error_limit": 0, "gateway_min_available": 1,
    }  # fmt: skip
    config = json.loads(render("gateway-agent.json.j2", variables))
    config["stops"] = str(running.directory / "stops.json")
    config["scale"].update(gateway=name, report=str(running.directory / "scale.json"), doors=doors)
    for service in config["scale"]["services"].values():
        for each in service["replicas"].values():
            each["fixed"] = each["instance"] in fixed
    (running.directory / "agent.json").write_text(json.dumps(config))
    command, environ = program("gateway-agent", running.directory / "agent.json")
    words = [sys.executable, "-c", AGENT, str(down_after), *map(str, command[1:])]
    with (running.directory / "agent.log").open("wb") as log:
        process = subprocess.Popen(words, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


class Site:
    """One host with the replicas chat-1 and chat-2, and gateways in front of it."""

    def __init__(
        self, top: Path, monkeypatch: pytest.MonkeyPatch, scale: dict[str, Any], running: int, places: int
    ) -> None:
        self.top, self.places = top, places
        self.scale = {"min": 1, "max": 2, "mode": "auto", "hosts": [], **scale}
        self.engines = {f"chat-{n}": ScaledEngine(free_port(), places) for n in (1, 2)}
        for directory in ("etc", "run/chat-1", "run/chat-2", "stopped"):
            (top / directory).mkdir(parents=True)
        (top / "etc/scale.key").write_text(door_keys(SECRET, "gw"))
        for number, (name, engine) in enumerate(self.engines.items()):
            if number < running:
                engine.start()
            else:
                (top / "stopped" / name).touch()
        for name, value in (("KEYS_FILE", "etc/scale.key"), ("RUN_DIR", "run"), ("STOPPED_DIR", "stopped")):
            monkeypatch.setattr(scale_door_host, name, str(top / value))
        monkeypatch.setattr(scale_door_host, "show_instances", self.show)
        monkeypatch.setattr(scale_door_host, "_systemctl", self.systemctl)
        instances = {name: {"resident": False} for name in self.engines}
        config = {"host": "gw", "listen": "127.0.0.1", "port": 0, "instances": instances}
        self.door = scale_door_host.Door(config)
        threading.Thread(target=self.door.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        # Each order, and when it came.
        self.orders: list[tuple[str, str, float]] = []

    def show(self, names: Any, _properties: Any) -> dict[str, dict[str, str]]:
        return {name: self.engines[name].unit() for name in names}

    def systemctl(self, verb: str, name: str) -> None:
        self.orders.append((verb, name, time.monotonic()))
        threading.Thread(target=getattr(self.engines[name], verb), daemon=True).start()

    @contextlib.contextmanager
    def gateway(self, name: str, down_after: float = 600) -> Any:
        """Yield a gateway and the process of its agent."""
        plans = {
            each: plan(engine.port, instance=each, scale=self.scale, args={"max-num-seqs": self.places}, of="chat")
            for each, engine in self.engines.items()
        }
        directory = self.top / name
        directory.mkdir()
        with gateway(
            directory, [], [client()], plans=plans, name="gw", secret=SECRET, options={"admission": "auto"}
        ) as running:
            doors = {"gw": f"127.0.0.1:{self.door.server_address[1]}"}
            with start_agent(running, doors, down_after, name) as process:
                # HAProxy takes each server for up until its checks have failed.
                for each, engine in self.engines.items():
                    wanted = "UP" if engine.server else "DOWN"
                    until(lambda each=each, wanted=wanted: running.state(f"gw--{each}").startswith(wanted))
                yield running, process

    def decides(self, name: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return bool(json.loads((self.top / name / "scale.json").read_text())["decides"])
        return False

    def log(self, name: str) -> str:
        return (self.top / name / "agent.log").read_text()

    def end(self) -> None:
        self.door.shutdown()
        self.door.server_close()
        for engine in self.engines.values():
            engine.kill()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[Site] = []

    def make(running: int = 1, places: int = 2, **scale: Any) -> Site:
        made.append(Site(tmp_path, monkeypatch, scale, running, places))
        return made[0]

    yield make
    for each in made:
        each.end()


class Load:
    """Clients that send one request after the other until the end."""

    def __init__(
        self, running: RunningGateway, count: int, model: str = "baremetal/gpt-oss-smoke", body: bytes = b""
    ) -> None:
        self.body = body or json.dumps({"model": model, "messages": []}).encode()
        self.running, self.over = running, threading.Event()
        self.statuses: list[int] = []
        self.threads = [threading.Thread(target=self.run) for _number in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self) -> None:
        while not self.over.is_set():
            headers = {"Content-Type": "application/json"}
            self.statuses.append(self.running.ask("POST", "/v1/chat/completions", KEY, self.body, **headers)[0])

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def test_a_replica_starts_while_requests_wait_and_stops_when_the_other_is_enough(site: Any) -> None:
    here = site()
    with here.gateway("gw-a", down_after=6) as (running, _agent):
        until(lambda: here.decides("gw-a"))
        began = time.monotonic()
        with Load(running, 5) as load:
            until(lambda: here.engines["chat-2"].answered > 0)
            took = time.monotonic() - began
        print(f"the second replica answered after {took:.1f} s, with a start of 1 s")
        # All of its clients have gone, and its running requests are answered before it stops.
        until(lambda: any(verb == "stop" for verb, _name, _at in here.orders), 90)
        assert [order[:2] for order in here.orders] == [("start", "chat-2"), ("stop", "chat-2")]
        assert set(load.statuses) == {200}
        until(lambda: running.state("gw--chat-2").startswith("DOWN"))
        time.sleep(3 * 6)
        # It does not swing, and one stays.
        assert len(here.orders) == 2
        assert "scale chat: start gw--chat-2: " in here.log("gw-a")
        with urllib.request.urlopen(f"http://127.0.0.1:{running.stats_port}/metrics/scale", timeout=60) as answer:
            assert b'inference_gateway_scale_replicas{service="chat",state="serving"} 1\n' in answer.read()


def test_the_first_request_to_no_replica_waits_until_one_has_started(site: Any) -> None:
    here = site(running=0, min=0)
    with here.gateway("gw-a") as (running, _agent):
        until(lambda: here.decides("gw-a"))
        time.sleep(3)
        assert here.orders == []
        began = time.monotonic()
        assert running.ask("POST", "/v1/chat/completions", KEY)[0] == 200
        print(f"the first request was answered after {time.monotonic() - began:.1f} s, with a start of 1 s")
        assert [order[:2] for order in here.orders] == [("start", "chat-1")]


def test_shadow_changes_nothing_and_says_what_it_would_do(site: Any) -> None:
    here = site(mode="shadow")
    with here.gateway("gw-a") as (running, _agent):
        until(lambda: here.decides("gw-a"))
        with Load(running, 5):
            until(lambda: "scale chat: would start gw--chat-2: " in here.log("gw-a"))
            found = json.loads((here.top / "gw-a/scale.json").read_text())
            assert found["services"]["chat"]["last"].partition(" ")[2].startswith("would start gw--chat-2: ")
            assert here.orders == []


def test_a_reload_under_load_starts_nothing(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled_engine, "ANSWER", 4)
    here = site(places=32)
    with here.gateway("gw-a") as (running, _agent):
        until(lambda: here.decides("gw-a"))
        with Load(running, 28) as load:
            until(lambda: here.engines["chat-1"].answered > 28)
            assert here.orders == []
            # All are answered at about the same time, so that all come to the new worker when it has few places.
            time.sleep(2.5)
            running.reload()
            time.sleep(25)
            assert here.orders == []
        assert set(load.statuses) == {200}


def test_the_other_gateway_decides_within_ten_seconds_and_counts_what_waits_at_both(site: Any) -> None:
    here = site()
    with here.gateway("gw-a") as (_first, agent), here.gateway("gw-b") as (second, _other):
        until(lambda: here.decides("gw-a") and not here.decides("gw-b"))
        # All requests come to the one that does not decide.
        with Load(second, 5):
            until(lambda: here.engines["chat-2"].answered > 0)
        agent.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: here.decides("gw-b"))
        took = time.monotonic() - killed
        print(f"the other gateway decided after {took:.1f} s")
        # 5 to 7 s are usual; a busy machine may take longer.
        assert took <= 20


def test_a_drained_replica_is_left_alone(site: Any) -> None:
    here = site(running=2)
    with here.gateway("gw-a", down_after=4) as (running, _agent):
        running.tell("set server chat/gw--chat-2 state drain")
        until(lambda: here.decides("gw-a"))
        time.sleep(15)
        assert here.orders == []
        running.tell("set server chat/gw--chat-2 state ready")
        until(lambda: here.orders, 60)
        assert [order[:2] for order in here.orders] == [("stop", "chat-2")]


def test_what_a_person_has_stopped_stays_stopped(site: Any) -> None:
    here = site()
    (here.top / "stopped/chat-2").unlink()
    with here.gateway("gw-a") as (running, _agent):
        until(lambda: here.decides("gw-a"))
        with Load(running, 5):
            time.sleep(12)
            assert here.orders == []


def test_without_a_secret_or_with_too_few_replicas_it_is_refused(tmp_path: Path) -> None:
    scale = {"min": 1, "max": 3, "mode": "auto", "hosts": []}
    plans = {"chat": plan(8000, instance="chat", scale=scale)}
    with pytest.raises(GatewayError, match=r"vllm_instances.chat.scale.max: found 3, and gw have 1 replicas"):
        RunningGateway(tmp_path, [], [client()], plans=plans)
