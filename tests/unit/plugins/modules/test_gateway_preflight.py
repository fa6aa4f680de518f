# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a port of the gateway before it starts is named before anything changes."""

from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm import ports_host
from ansible_collections.baremetal.inference.plugins.modules.gateway_preflight import find_port_conflict

from tests.fakes.wheelhouse import run_module

OPTION = "gateway_agent_port"


def test_a_port_that_a_user_has_taken_is_named_with_the_user_and_the_option():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = find_port_conflict({port: OPTION})
    assert found.startswith(f"{OPTION}: port {port} is in use by process {os.getpid()} (")
    assert " of the user " in found and found.endswith(f"; stop it, or set {OPTION} to another port")
    assert find_port_conflict({port: OPTION}) is None


@pytest.mark.parametrize("unit", ["haproxy.service", "gateway-agent.service", "gateway-usage.socket"])
def test_the_gateway_s_own_units_have_its_ports(monkeypatch, unit):
    monkeypatch.setattr(ports_host, "unit_of", lambda _cgroup: unit)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert find_port_conflict({server.getsockname()[1]: OPTION}) is None


@pytest.mark.parametrize(
    ("path", "unit"),
    [("/system.slice/gateway-agent.socket", None), ("/system.slice/cockpit.socket", "cockpit.socket"), ("", None)],
)
def test_a_port_that_systemd_has_is_the_gateway_s_unless_another_unit_asked_for_it(monkeypatch, path, unit):
    monkeypatch.setattr(ports_host, "_socket_holders", lambda inodes: [(inode, 1) for inode in inodes])
    monkeypatch.setattr(ports_host, "paths_of", lambda _groups: iter([path] if path else []))
    monkeypatch.setattr(ports_host, "text_of", lambda _path: "0::/init.scope\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = find_port_conflict({server.getsockname()[1]: OPTION})
    assert (found or "").find(f", unit {unit}; ") > 0 if unit else found is None


def test_an_address_that_the_host_does_not_have(tmp_path):
    listens = {"gateway_listen": "::", "gateway_stats_listen": "192.0.2.1"}
    asked = {"ports": {}, "socket": str(tmp_path / "admin.sock"), "files": [], "listens": listens}
    message = run_module("gateway_preflight", **asked)["msg"]
    assert ": gateway_stats_listen: found '192.0.2.1', expected an address of this host (" in message
