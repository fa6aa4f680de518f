# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules as Ansible runs them, on a host whose commands answer as docker's do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.fakes.wheelhouse import ROOT, run_module

SYSTEM = yaml.safe_load((ROOT / "roles/container_runtime/vars/Debian_13.yml").read_text())["__container_runtime_system"]
INFO = {
    "ServerVersion": "26.1.5+dfsg1",
    "DockerRootDir": "/var/lib/docker",
    "CgroupDriver": "systemd",
    "Runtimes": {"runc": {}},
    "RegistryConfig": {"Mirrors": [], "IndexConfigs": {}},
}
COMMANDS = {
    "docker": 'case "$1" in --version) echo Docker;; info) cat "$FAKE/info";; ps) cat "$FAKE/names";; esac',
    "dockerd": "exit 0",
    "dpkg-query": 'case "$*" in *Want*) echo docker.io 26 hold installed; echo docker-cli 26 hold installed;; esac',
    "systemctl": "exit 0",
}


@pytest.fixture
def host(tmp_path, monkeypatch) -> Path:
    """A directory of commands that goes before all others; its files hold what they answer."""
    for name, line in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "info").write_text(json.dumps(INFO))
    (tmp_path / "names").write_text("")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def look(**options):
    return run_module("container_runtime", system=SYSTEM, source="distro", **options)


def test_a_host_with_all_that_is_wanted(host):
    result = look(_ansible_check_mode=True)
    assert (result.get("changes"), result.get("changed")) == (False, False), result


def test_a_plan_is_plain_data(host):
    plan = look(registry_mirrors=["mirror:5000"])["plan"]
    assert plan["reload"] == ["registry-mirrors"]
    assert json.loads(plan["files"][0]["content"])["registry-mirrors"] == ["https://mirror:5000"]
    assert plan["files"][0]["validate"] == "dockerd --validate --config-file=%s"


def test_containers_that_a_restart_would_stop_are_named_with_the_host(host):
    (host / "names").write_text("vllm-chat\nregistry\n")
    result = look(storage="/data/docker")
    assert result["failed"]
    assert result["msg"] == (
        f"{os.uname().nodename}: docker must be restarted (data-root /var/lib/docker -> /data/docker), which stops its "
        "containers: registry, vllm-chat; stop them first, or set container_runtime_restart_allowed: true"
    )
    assert look(storage="/data/docker", restart_allowed=True)["plan"]["restart"]


def test_the_check_returns_a_fact(host):
    result = run_module("container_runtime_check", engine="docker", packager="deb")
    fact = result["ansible_facts"]["accelerator_container_runtime"]
    assert (fact["engine"], fact["version"], fact["storage"]) == ("docker", "26.1.5+dfsg1", "/var/lib/docker")


def test_the_check_says_what_to_do(host):
    (host / "info").write_text(json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon"]}))
    result = run_module("container_runtime_check", engine="docker", packager="deb")
    assert result["msg"].startswith(
        f"{os.uname().nodename}: docker does not answer (Cannot connect to the Docker daemon)"
    )
    assert result["msg"].endswith("see systemctl status docker")
