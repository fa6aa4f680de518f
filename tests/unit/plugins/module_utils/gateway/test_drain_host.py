# SPDX-License-Identifier: GPL-3.0-or-later
"""What a drain does in which order, and how long it waits, with a scripted HAProxy and clock.

tests/integration/test_gateway_servers.py does the same with the real HAProxy.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import drain_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.drain_host import GatewayServers
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host import (
    GatewayPaths,
    NoAnswerError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
    Selection,
    ServersError,
    ServersRequest,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import HaproxyServer, HaproxyView

A, B = "a--chat", "b--chat"
BOTH = Selection((A, B))
DRAIN = ServersRequest("drained", "rollout:1", "fan", 0, False, "2026-11-28T03:00:00Z")
RETURN = replace(DRAIN, state="ready")


class Scripted:
    """A HAProxy with two servers. ``later`` are changes at the n-th look at it, or "silent"."""

    def __init__(self, owners):
        self.name, self.owners, self.events = "gw1", owners, []
        self.servers = {name: HaproxyServer(name, "chat", "10.0.0.1", 8000, "ready", True) for name in (A, B)}
        self.started, self.looks, self.later, self.refusal, self.unsaved = "7-1", 0, {}, "", []

    def set(self, *names, **changes):
        for name in names:
            self.servers[name] = replace(self.servers[name], **changes)

    def view(self):
        self.looks += 1
        if self.later.get(self.looks, lambda: None)() == "silent":
            raise NoAnswerError("gw1: HAProxy does not answer")
        return HaproxyView(7, self.started, dict(self.servers), {})

    wait_for_view = view

    def ask(self, command):
        _set, _server, name, _state, state = command.split()
        self.events.append((command, self.recorded()))
        if self.refusal:
            return self.refusal
        self.set(name.partition("/")[2], state=state)
        return "\n"

    def recorded(self):
        return sorted(json.loads(self.owners.read_text())["servers"]) if self.owners.exists() else None

    def save_states(self):
        self.events.append(("save", self.recorded()))

    def unsaved_servers(self, _view, _names):
        return self.unsaved

    def address_arrivals(self):
        return 3


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves where somebody sleeps."""
    found = SimpleNamespace(now=0.0)

    def sleep(seconds):
        assert seconds > 0
        found.now += seconds

    monkeypatch.setattr(drain_host, "time", SimpleNamespace(monotonic=lambda: found.now, sleep=sleep))
    return found


@pytest.fixture
def gateway(tmp_path, clock):
    paths = GatewayPaths(**{name: str(tmp_path / name) for name in GatewayPaths.__dataclass_fields__})
    found = GatewayServers(paths)
    found.haproxy = Scripted(tmp_path / "owners_file")
    found.name = "gw1"
    return found


def test_a_drain_is_recorded_before_it_is_set_and_a_return_after(gateway):
    outcome = gateway.change(Selection((A,)), DRAIN, False)
    assert gateway.haproxy.events == [(f"set server chat/{A} state drain", [A]), ("save", [A])]
    assert outcome.changed and outcome.view.servers[A].state == "drain" and outcome.arrivals == 3
    assert outcome.before[0].servers[A].state == "ready" and outcome.records[A]["owner"] == "rollout:1"
    gateway.haproxy.events.clear()
    assert gateway.change(Selection((A,)), RETURN, False).changed
    # A run that is killed here leaves a record too many, which counts for nothing.
    assert gateway.haproxy.events == [(f"set server chat/{A} state ready", [A]), ("save", [A])]
    assert gateway.haproxy.recorded() == []


@pytest.mark.parametrize(("request_", "check"), [(DRAIN, True), (replace(DRAIN, state="status"), False)])
def test_a_dry_run_and_a_look_change_nothing_and_take_no_lock(gateway, tmp_path, request_, check):
    outcome = gateway.change(BOTH, request_, check)
    assert gateway.haproxy.events == [] and list(tmp_path.iterdir()) == []
    assert outcome.changed is (request_.state == "drained")
    assert outcome.names == [A, B] and outcome.view is outcome.before[0]


def test_states_that_a_restart_would_lose_are_saved_again(gateway):
    assert not gateway.change(BOTH, RETURN, False).changed and gateway.haproxy.events == []
    gateway.haproxy.unsaved = [A]
    assert not gateway.change(BOTH, replace(DRAIN, state="status"), False).changed
    assert gateway.change(BOTH, RETURN, False).changed
    assert gateway.haproxy.events == [("save", None)]


def test_a_refused_command_ends_the_change_with_haproxys_words(gateway):
    gateway.haproxy.refusal = "No such server.\n\n"
    with pytest.raises(
        ServersError, match=r"gw1: HAProxy refused 'set server chat/a--chat state drain': .*No such server"
    ):
        gateway.change(BOTH, DRAIN, False)
    assert len(gateway.haproxy.events) == 1


def test_a_request_that_is_refused_names_the_gateway_in_each_line(gateway):
    with pytest.raises(ServersError, match=r"^gw1: service chat: without a--chat, b--chat, no server would remain"):
        gateway.change(BOTH, replace(DRAIN, min_available=1), False)
    assert gateway.haproxy.events == []


def test_an_idle_server_counts_as_drained_after_a_second(gateway, clock):
    outcome = gateway.change(BOTH, DRAIN, False)
    gateway.wait(outcome, DRAIN, 60)
    assert 1.0 <= clock.now < 1.2
    # Nothing was set: there is nothing that a reload could lose.
    began = clock.now
    gateway.wait(gateway.change(BOTH, DRAIN, False), DRAIN, 60)
    assert clock.now == began


@pytest.mark.parametrize("load", [{"sessions": 2}, {"queued": 1}])
def test_a_drain_waits_for_requests_and_no_longer_than_it_may(gateway, clock, load):
    gateway.haproxy.set(B, **load)
    outcome = gateway.change(BOTH, DRAIN, False)
    gateway.wait(outcome, DRAIN, 10)
    assert not outcome.idle() and 10 <= outcome.waited < 11.1
    gateway.haproxy.set(B, sessions=0, queued=0)
    began = clock.now
    gateway.wait(outcome, DRAIN, 10)
    assert outcome.idle() and clock.now - began < 2.2


def test_a_return_waits_until_the_checks_pass(gateway, clock):
    gateway.change(BOTH, DRAIN, False)
    gateway.haproxy.set(A, B, up=False)
    outcome = gateway.change(BOTH, RETURN, False)
    gateway.haproxy.later[gateway.haproxy.looks + 3] = lambda: gateway.haproxy.set(A, B, up=True)
    gateway.wait(outcome, RETURN, 30)
    assert outcome.up() and 0 < outcome.waited < 2


def test_what_somebody_else_drained_is_not_waited_for(gateway, clock):
    gateway.change(Selection((B,)), replace(DRAIN, owner="admin:mia"), False)
    gateway.change(Selection((A,)), DRAIN, False)
    outcome = gateway.change(BOTH, RETURN, False)
    assert outcome.own_names() == [A] and outcome.change.held == [B]
    gateway.wait(outcome, RETURN, 30)
    assert outcome.up() and clock.now == 0


def lose(haproxy, started):
    haproxy.started = started
    haproxy.set(A, state="ready")


def test_a_drain_that_a_reload_lost_is_set_again(gateway, clock):
    outcome = gateway.change(BOTH, DRAIN, False)
    gateway.haproxy.later[gateway.haproxy.looks + 2] = lambda: lose(gateway.haproxy, "8-2")
    gateway.wait(outcome, DRAIN, 30)
    assert gateway.haproxy.servers[A].state == "drain" and outcome.view.servers[A].state == "drain"
    # It counts a second after it was set again.
    assert 1.1 < clock.now < 3
    assert [command for command, _known in gateway.haproxy.events].count(f"set server chat/{A} state drain") == 2


@pytest.mark.parametrize("forget", [False, True])
def test_a_server_that_a_person_returned_meanwhile_stops_the_drain(gateway, tmp_path, forget):
    outcome = gateway.change(BOTH, DRAIN, False)

    def somebody():
        lose(gateway.haproxy, "8-2" if forget else "7-1")
        if forget:
            # A run of somebody else, after a reload.
            gateway.owners.write({})

    gateway.haproxy.later[gateway.haproxy.looks + 1] = somebody
    with pytest.raises(ServersError, match=r"^gw1: a--chat was made ready by another user while it was being drained"):
        gateway.wait(outcome, DRAIN, 30)


@pytest.mark.parametrize(("seconds", "silent", "ends"), [(5, 3, True), (5, 10**6, False), (0, 10**6, False)])
def test_a_silent_haproxy_is_waited_for_and_named_in_the_end(gateway, clock, seconds, silent, ends):
    outcome = gateway.change(BOTH, DRAIN, False)
    first = gateway.haproxy.looks
    gateway.haproxy.later = SimpleNamespace(
        get=lambda look, _default: lambda: "silent" if first < look <= first + silent else None
    )
    if ends:
        gateway.wait(outcome, DRAIN, seconds)
        return
    with pytest.raises(ServersError, match="HAProxy does not answer"):
        gateway.wait(outcome, DRAIN, seconds)
    assert clock.now >= max(seconds, drain_host.PART_SECONDS)


def test_a_server_that_serves_without_errors_passes_the_watch(gateway, clock):
    gateway.change(BOTH, DRAIN, False)
    outcome = gateway.change(BOTH, RETURN, False)
    gateway.haproxy.later[gateway.haproxy.looks + 1] = lambda: gateway.haproxy.set(A, requests=9)
    gateway.watch(outcome, 5)
    assert clock.now == 5


def test_an_error_of_the_first_request_fails_the_watch(gateway, clock):
    gateway.change(BOTH, DRAIN, False)
    outcome = gateway.change(BOTH, RETURN, False)
    outcome.view = replace(
        outcome.view, servers={**outcome.view.servers, A: replace(outcome.view.servers[A], errors=1)}
    )
    with pytest.raises(ServersError, match=r"^gw1: a--chat: 1 errors in 0 requests since it returned"):
        gateway.watch(outcome, 60)
    assert clock.now == 0


def test_errors_are_counted_from_a_restart_on(gateway, clock):
    gateway.haproxy.set(A, errors=9)
    outcome = gateway.change(BOTH, RETURN, False)

    def restart():
        gateway.haproxy.started = "9-9"
        gateway.haproxy.set(A, errors=2)

    gateway.haproxy.later = {gateway.haproxy.looks + 2: restart}
    gateway.watch(outcome, 4)
    # Two errors of the new process, then a third.
    gateway.haproxy.later = {gateway.haproxy.looks + 2: lambda: gateway.haproxy.set(A, errors=3)}
    outcome = gateway.change(BOTH, RETURN, False)
    with pytest.raises(ServersError, match="a--chat: 1 errors"):
        gateway.watch(outcome, 60)
    gateway.haproxy.set(A, errors=9)
    outcome = gateway.change(BOTH, RETURN, False)

    def restart_again():
        gateway.haproxy.started = "10-10"
        gateway.haproxy.set(A, errors=2)

    look = gateway.haproxy.looks
    gateway.haproxy.later = {look + 2: restart_again, look + 3: lambda: gateway.haproxy.set(A, errors=4)}
    with pytest.raises(ServersError, match="a--chat: 2 errors"):
        gateway.watch(outcome, 60)


def test_a_haproxy_that_stays_silent_fails_the_watch(gateway, clock):
    outcome = gateway.change(BOTH, RETURN, False)
    gateway.haproxy.later = SimpleNamespace(get=lambda *_: lambda: "silent")
    with pytest.raises(ServersError, match="HAProxy does not answer"):
        gateway.watch(outcome, 3)
    assert clock.now == 3
