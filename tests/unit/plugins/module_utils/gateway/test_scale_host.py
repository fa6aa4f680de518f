# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop in the agent, without HAProxy and hosts; tests/integration/test_gateway_scale.py has both."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import scale_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.places import Load, Places
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.scale import UP_AFTER
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.verdict import Watched
from ansible_collections.baremetal.inference.plugins.module_utils.instance.scale_door import LEASE, RefusedError

STAT = (
    "# pxname,svname,qcur,scur,status,\nchat,gpu-a--chat,0,3,UP,\nchat,gpu-b--chat,0,0,DOWN,\nchat,BACKEND,{},2,UP,\n\n"
)
ACTIVE = {"active": "active", "sub": "running", "seconds": 900, "spare": False, "stopped": False}
STOPPED = {"active": "inactive", "sub": "dead", "seconds": 0, "spare": False, "stopped": True}
ASK_DOOR, RESTS = scale_host.ask_door, scale_host.RESTS
# After a reload, without a look at what waits.
SECONDS = 18


class Site:
    """Two hosts, one of whose replicas is stopped, and the clock."""

    def __init__(self, top: Path, mode: str = "auto", interval: float = 2) -> None:
        self.now, self.queued, self.holder, self.top = 1000.0, 0, "gw-a", top
        self.asked: list[dict[str, Any]] = []
        self.table, self.reloaded = STAT, False
        self.silent: set[str] = set()
        self.odd: dict[str, Any] = {}
        keys = ("service:chat", "scale:gpu-a", "scale:gpu-b")
        (top / "secret").write_text("".join(f"{name} {'s' * 32}\n" for name in keys))
        replicas = {
            f"{host}--chat": {
                "address": f"{host}:8000", "host": host, "instance": "chat", "places": 2, "resident": False,
                "fixed": False,
            }
            for host in ("gpu-a", "gpu-b")
        }  # fmt: skip
        config = {
            "gateway": "gw-a", "secret": str(top / "secret"), "report": str(top / "scale.json"),
            "doors": {"gpu-a": "gpu-a:8471", "gpu-b": "gpu-b:8471"},
            "services": {"chat": {"min": 1, "max": 2, "mode": mode, "replicas": replicas}},
        }  # fmt: skip
        watched = {each["address"]: Watched(60, 0) for each in replicas.values()}
        watched["gpu-a:8000"].load = Load(2, 1, 0.5, 2)
        self.places = watched["gpu-a:8000"].places = Places(2, 2)
        self.scaler = scale_host.Scaler(config, "stats", watched, interval, self.notice_reload)

    def notice_reload(self, now: float) -> None:
        """Note it as the agent does, which sees that another process answers."""
        assert now == self.now
        if self.reloaded:
            self.reloaded, self.places.reloaded_at = False, now

    def ask(self, address: str, secret: str, document: dict[str, Any]) -> dict[str, Any]:
        assert secret == "s" * 32
        host = document["host"]
        if host in self.silent:
            raise OSError("no route")
        self.asked.append(document)
        reports = {"gw-b": {"waiting": {"chat": 4}, "held": []}, "gw-a": {"waiting": {"chat": 99}}}
        return {
            "reports": reports,
            "instances": {"chat": {**(ACTIVE if host == "gpu-a" else STOPPED), "holder": self.holder}},
            **self.odd.get(host, {}),
        }

    def orders(self) -> list[tuple[str, str]]:
        return [(each["verb"], each["host"]) for each in self.asked if "verb" in each]

    def step(self, seconds: float = 0) -> None:
        self.now += seconds
        self.scaler.step()

    def report(self) -> Any:
        return json.loads((self.top / "scale.json").read_text())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(mode: str = "auto", interval: float = 2) -> Site:
        found = Site(tmp_path, mode, interval)
        monkeypatch.setattr(scale_host, "ask_root", lambda *_args: found.table.format(found.queued))
        monkeypatch.setattr(scale_host, "ask_door", found.ask)
        monkeypatch.setattr(scale_host.time, "monotonic", lambda: found.now)
        return found

    return make


def test_what_waits_here_elsewhere_and_in_engines_counts_once(site: Any) -> None:
    here = site()
    here.queued = 3
    here.step()
    # Three in this queue, four at gw-b, one in the engine; not the report of this gateway itself.
    assert here.report()["services"]["chat"]["waiting"] == 8
    assert here.report()["services"]["chat"]["replicas"]["stopped"] == 1
    assert here.report()["services"]["chat"]["idle"] == ["gpu-b--chat"]
    assert here.report()["services"]["chat"]["hosts"] == ["gpu-b"]
    assert here.asked[0]["report"] == {"waiting": {"chat": 3}, "held": [], "there": {"chat": 3}}


def test_an_engine_that_lies_changes_the_number_no_more_than_its_requests_can(site: Any) -> None:
    here = site()
    # It hides what waits at the gateways behind a million requests that run, or invents such that wait.
    here.scaler.watched["gpu-a:8000"].load = Load(10**6, 0, 0.5, 2)
    here.step()
    here.step(UP_AFTER)
    assert here.orders() == [("start", "gpu-b")]
    here.scaler.watched["gpu-a:8000"].load = Load(0, 10**6, 0.5, 2)
    here.step()
    assert here.report()["services"]["chat"]["waiting"] == 4 + 3


def test_the_host_of_the_next_replica_is_asked_to_start_it(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here = site()
    here.step()
    here.step(UP_AFTER)
    assert here.orders() == [("start", "gpu-b")]
    assert "scale chat: start gpu-b--chat: 5 requests wait" in capsys.readouterr().out
    lines = here.scaler.metrics()
    assert 'inference_gateway_scale_actions_total{service="chat",mode="auto",verb="start"} 1' in lines
    assert 'inference_gateway_scale_waiting{service="chat"} 5' in lines
    assert "inference_gateway_scale_decides 1" in lines


def test_what_an_engine_says_once_starts_nothing_however_seldom_it_is_asked(site: Any) -> None:
    here = site(interval=10)
    here.odd = {host: {"reports": {}} for host in ("gpu-a", "gpu-b")}
    for _second in range(10):
        here.step(1)
    here.scaler.watched["gpu-a:8000"].load = Load(2, 0, 0.5, 2)
    here.step(1)
    assert here.orders() == []
    assert here.scaler.services["chat"].scale.capacity == 0


def test_a_reload_is_no_sign_of_too_few(site: Any) -> None:
    here = site()
    here.odd = {host: {"reports": {}} for host in ("gpu-a", "gpu-b")}
    here.scaler.watched["gpu-a:8000"].load = Load(2, 0, 0.5, 2)
    here.step()
    # The new worker does not know the requests of the one before, and its own wait for their places.
    here.reloaded, here.queued, here.table = True, 9, STAT.replace("0,3,UP", "0,1,UP")
    here.scaler.watched["gpu-a:8000"].load = Load(2, 2, 0.5, 1)
    here.asked.clear()
    for _second in range(SECONDS):
        here.step()
        assert here.report()["services"]["chat"]["waiting"] == 0
        here.now += 1
    # It asks on, so that it may decide afterwards, and a gateway that decides hears of no wait either.
    reports = [(each["host"], *each["report"]["waiting"].values(), each["report"]["there"]) for each in here.asked]
    assert sorted(reports, key=str) == [("gpu-a", 0, {"chat": 3})] * SECONDS + [("gpu-b", 0, {"chat": 0})] * SECONDS
    assert here.orders() == []
    assert here.scaler.services["chat"].scale.capacity == 0
    # What waits still is.
    here.step()
    here.step(UP_AFTER)
    assert here.orders() == [("start", "gpu-b")]


def test_after_a_reload_what_waits_for_any_server_and_elsewhere_counts(site: Any) -> None:
    here = site()
    here.step()
    here.reloaded, here.table = True, STAT.replace(",UP,", ",DOWN,")
    here.odd = {
        host: {"reports": {}, "instances": {"chat": {**STOPPED, "holder": "gw-a"}}} for host in ("gpu-a", "gpu-b")
    }
    here.step(1)
    assert here.orders() == [("start", "gpu-a")]
    here.asked.clear()
    here.table, here.odd = STAT, {}
    here.step()
    here.step(UP_AFTER)
    assert here.orders() == [("start", "gpu-b")]


def test_shadow_asks_no_host_to_do_anything(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here = site("shadow")
    here.step()
    here.step(UP_AFTER)
    assert here.orders() == []
    assert "scale chat: would start gpu-b--chat" in capsys.readouterr().out


def test_a_gateway_that_does_not_decide_does_nothing_and_forgets_the_load(site: Any) -> None:
    here = site()
    here.step()
    here.holder = "gw-0"
    here.step(UP_AFTER)
    assert here.orders() == [] and here.report() == {"decides": False, "services": {}}
    here.holder = "gw-a"
    here.step()
    # It has not seen that requests wait for long enough.
    assert here.orders() == []


def test_a_host_that_does_not_answer_is_left_alone_and_asked_again_later(
    site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    here = site()
    here.silent = {"gpu-b"}
    here.step()
    here.step(UP_AFTER)
    assert here.orders() == []
    assert capsys.readouterr().out.count("scale: gpu-b does not answer: no route") == 1
    here.silent = set()
    here.step(1)
    assert {each["host"] for each in here.asked} == {"gpu-a"}
    here.step(scale_host.RESTS)
    assert "gpu-b" in {each["host"] for each in here.asked}
    here.silent = {"gpu-a", "gpu-b"}
    here.step(scale_host.RESTS)
    assert not here.report()["decides"]


def test_a_host_without_a_key_is_asked_nothing_and_silent(
    site: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = site()
    asked: list[tuple[str, int]] = []
    (here.top / "secret").write_text(f"service:chat {'s' * 32}\n")
    monkeypatch.setattr(scale_host, "ask_door", ASK_DOOR)
    connect = socket.create_connection

    def ask(address: tuple[str, int], *given: Any) -> socket.socket:
        # Threads of other tests connect through the same module.
        if not address[0].startswith("gpu-"):
            return connect(address, *given)
        asked.append(address)
        raise OSError("a host without a key was asked")

    monkeypatch.setattr(scale_host.socket, "create_connection", ask)
    here.step()
    assert asked == [] and not here.report()["decides"]
    assert (
        "scale: gpu-a does not answer: the gateway has no key of this host; run gateway.yml" in capsys.readouterr().out
    )


def test_none_leaves_while_a_host_of_the_service_is_silent(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site()
    monkeypatch.setattr(scale_host, "ask_root", lambda *_args: STAT.format(0).replace(",DOWN,", ",UP,"))
    here.scaler.watched["gpu-a:8000"].load = Load(0, 0, 0.5, 2)
    here.odd = {"gpu-b": {"instances": {"chat": {**ACTIVE, "holder": "gw-a"}}}}
    for host in ("gpu-a", "gpu-b"):
        here.odd[host] = {**here.odd.get(host, {}), "reports": {}}
    # The other gateway of a network that fell apart may see it, and decides about the others.
    here.silent = {"gpu-b"}
    for _time in range(200):
        here.step(RESTS)
    assert here.orders() == [] and here.report()["decides"]
    here.silent = set()
    here.step(RESTS)
    assert here.orders() == [("stop", "gpu-b")]


def test_an_answer_of_another_form_is_none(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here = site()
    for odd in ({"instances": {"chat": 1}}, {"instances": {"chat": None}}, {"instances": {"chat": {"holder": 1}}}):
        here.odd = {"gpu-b": odd}
        here.step(RESTS)
        assert here.report()["services"]["chat"]["replicas"]["stopped"] == 0
    assert capsys.readouterr().out.count("gpu-b does not answer: the answer has an instance without a state") == 1


def test_a_host_counts_for_its_own_services_only(site: Any) -> None:
    here = site()
    config = here.scaler.config
    other = {**config["services"]["chat"]["replicas"]["gpu-b--chat"], "instance": "other", "host": "gpu-x"}
    services = {**config["services"], "other": {**config["services"]["chat"], "replicas": {"gpu-x--other": other}}}
    config = {**config, "services": services, "doors": {**config["doors"], "gpu-x": "gpu-x:8471"}}
    (here.top / "secret").write_text(f"{(here.top / 'secret').read_text()}scale:gpu-x {'s' * 32}\n")
    here.scaler = scale_host.Scaler(config, "stats", here.scaler.watched, 2, here.notice_reload)
    # It says that somebody else decides, that all wait for chat and that a person has drained it.
    reports = {"gw-z": {"waiting": {"chat": 10**6}, "held": ["gpu-b--chat"]}}
    here.odd = {"gpu-x": {"reports": reports, "instances": {"other": {**ACTIVE, "holder": "gw-0"}}}}
    here.step()
    here.step(UP_AFTER)
    assert here.report()["services"].keys() == {"chat"}
    assert here.report()["services"]["chat"]["waiting"] == 5
    assert here.orders() == [("start", "gpu-b")]
    # To each host a gateway names what it serves there, so that another gateway can have the rest.
    assert {(each["host"], *each["instances"]) for each in here.asked} == {
        ("gpu-a", "chat"), ("gpu-b", "chat"), ("gpu-x", "other")
    }  # fmt: skip


def test_many_hosts_that_are_off_do_not_make_a_round_longer_than_the_lease(site: Any) -> None:
    here = site()
    replica = here.scaler.config["services"]["chat"]["replicas"]["gpu-b--chat"]
    names = [f"gpu-{number}" for number in range(100)]
    config = {
        **here.scaler.config, "doors": {name: f"{name}:8471" for name in (*names, "gpu-a")},
        "services": {"chat": {**here.scaler.config["services"]["chat"], "replicas": {
            f"{name}--chat": {**replica, "host": name} for name in (*names, "gpu-a")
        }}},
    }  # fmt: skip
    (here.top / "secret").write_text("".join(f"scale:{name} {'s' * 32}\n" for name in config["doors"]))
    here.scaler = scale_host.Scaler(config, "stats", here.scaler.watched, 2, here.notice_reload)
    asked: list[str] = []
    here.silent = set(names)
    here.scaler._ask = lambda host, key, report, ask=here.scaler._ask: asked.append(host) or ask(host, key, report)
    here.step()
    assert len(asked) == 101
    seen = set()
    for _time in range(20):
        asked.clear()
        here.step(RESTS)
        assert "gpu-a" in asked and len(asked) <= 1 + scale_host.SILENT_AT_ONCE
        seen |= set(asked)
    # Nobody is forgotten.
    assert len(seen) == 101
    assert scale_host.SILENT_AT_ONCE < scale_host.WORKERS and scale_host.TIMEOUT + scale_host.INTERVAL < LEASE


def test_an_order_that_fails_is_reported(
    site: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site()
    here.step()

    def refuse(address: str, secret: str, document: dict[str, Any]) -> dict[str, Any]:
        if "verb" in document:
            raise RefusedError("gw-0 decides")
        return here.ask(address, secret, document)

    monkeypatch.setattr(scale_host, "ask_door", refuse)
    here.step(UP_AFTER)
    assert "2 replicas serve or are about to; it failed: gw-0 decides" in capsys.readouterr().out
