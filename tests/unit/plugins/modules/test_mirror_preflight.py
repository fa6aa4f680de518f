# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import socket

import pytest
from ansible.module_utils import basic
from ansible_collections.baremetal.inference.plugins.modules import mirror_preflight

from tests.fakes.wheelhouse import run_module


@pytest.fixture
def busy_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_free_port_and_a_place_that_is_there(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = run_module("mirror_preflight", root=str(tmp_path / "mirror"), port=port)
    assert not result.get("failed"), result
    assert not result["changed"]
    assert not (tmp_path / "mirror").exists() and result["content_written"] is None


def test_a_port_of_somebody_else_names_the_process(tmp_path, busy_port):
    message = run_module("mirror_preflight", root=str(tmp_path), port=busy_port)["msg"]
    assert message.startswith(f"mirror_port {busy_port} is in use by process {os.getpid()} (")
    assert message.endswith("stop that, or give mirror_port another number")


def test_an_address_that_the_host_does_not_have(tmp_path):
    message = run_module("mirror_preflight", root=str(tmp_path), port=9, listens={"mirror_listen": "192.0.2.1"})["msg"]
    assert ": mirror_listen: found '192.0.2.1', expected an address of this host (" in message


def test_a_disk_that_is_not_mounted(tmp_path):
    message = run_module("mirror_preflight", root=str(tmp_path), mount_point=str(tmp_path), port=9)["msg"]
    assert message.startswith(f"mirror_mount_point {tmp_path} is not mounted; attach and mount the disk")


def test_a_place_below_nothing(tmp_path):
    message = run_module("mirror_preflight", root=str(tmp_path / "disk/mirror"), port=9)["msg"]
    assert message.startswith(f"mirror_root {tmp_path}/disk/mirror: {tmp_path}/disk does not exist")


def test_the_default_site_is_in_the_way_of_port_80_only(tmp_path):
    def clashes(port):
        return run_module("mirror_preflight", root=str(tmp_path), port=port).get("default_site_clashes")

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    port_80_is_free = clashes(80)
    if port_80_is_free is None:
        pytest.skip("something listens on port 80 here")
    assert port_80_is_free is True
    assert clashes(port) is False


def test_a_port_of_the_registry_that_is_somebody_elses_is_named(tmp_path, busy_port):
    message = run_module("mirror_preflight", root=str(tmp_path), port=9, registry_port=busy_port)["msg"]
    assert message.startswith(f"mirror_registry_port {busy_port} is in use by process {os.getpid()} (")
    assert message.endswith("stop that, or give mirror_registry_port another number")


def test_two_ports_that_are_one(tmp_path):
    message = run_module("mirror_preflight", root=str(tmp_path), port=7, registry_port=7)["msg"]
    assert message == "mirror_registry_port: 7 is the port of mirror_port too; give one of them another"


@pytest.mark.parametrize(("check", "failed"), [(True, True), (False, False)])
def test_check_mode_fails_where_the_run_would(monkeypatch, capsys, tmp_path, check, failed):
    monkeypatch.setattr(mirror_preflight, "repository_problem", lambda needed: f"no repository for {needed}")
    monkeypatch.setattr(mirror_preflight, "NGINX", "/nowhere/nginx")
    arguments = {"root": str(tmp_path), "port": 9, "_ansible_check_mode": check}
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    with pytest.raises(SystemExit):
        mirror_preflight.main()
    found = json.loads(capsys.readouterr().out)
    assert bool(found.get("failed")) == failed and ("no repository for" in found.get("msg", "")) == failed
