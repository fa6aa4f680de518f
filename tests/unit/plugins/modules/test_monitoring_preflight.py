# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import socket

import pytest
from ansible.module_utils import basic
from ansible_collections.baremetal.inference.plugins.modules import monitoring_preflight

from tests.fakes.wheelhouse import run_module

UNIT = "prometheus-node-exporter.service"


@pytest.fixture
def port():
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
    yield number


def ask(port, **more):
    return run_module(
        "monitoring_preflight",
        **{"program": "/bin/sh", "unit": UNIT, "listens": {"monitoring_node_listen": "::"}, "port": port, **more},
    )


def test_a_free_port(port):
    assert ask(port)["installed"] is True
    assert ask(port, program="/nowhere/exporter")["installed"] is False


def test_a_port_of_somebody_else_names_the_process():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = ask(port)["msg"]
    assert message.startswith(f"monitoring_node_port {port} is in use by process {os.getpid()} (")
    assert message.endswith("A host that has a node exporter already does not need the role monitoring")


def test_an_address_that_the_host_does_not_have(port):
    message = ask(port, listens={"monitoring_node_listen": "192.0.2.1"})["msg"]
    assert ": monitoring_node_listen: found '192.0.2.1', expected an address of this host (" in message


def test_a_program_of_the_site_must_exist(port):
    message = ask(port, program="/opt/gone", installed_by_site=True)["msg"]
    assert message.startswith("monitoring_node_program: /opt/gone is no program on this host; install it there")


@pytest.mark.parametrize(("check", "failed"), [(True, True), (False, False)])
def test_check_mode_fails_where_the_run_would(monkeypatch, capsys, port, check, failed):
    monkeypatch.setattr(monitoring_preflight, "repository_problem", lambda needed: f"no repository for {needed}")
    arguments = {
        "program": "/nowhere/x",
        "unit": UNIT,
        "listens": {"monitoring_node_listen": "::"},
        "port": port,
        "_ansible_check_mode": check,
    }
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    with pytest.raises(SystemExit):
        monitoring_preflight.main()
    found = json.loads(capsys.readouterr().out)
    assert bool(found.get("failed")) == failed and ("no repository for" in found.get("msg", "")) == failed
