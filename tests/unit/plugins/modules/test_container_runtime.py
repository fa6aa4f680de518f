# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules as Ansible runs them, on a host whose commands answer as docker's do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import HostState

from tests.fakes.container_runtimes import write_engine
from tests.fakes.wheelhouse import run_module


@pytest.fixture
def host(tmp_path, monkeypatch) -> Path:
    """A directory of commands that goes before all others; its files hold what they answer."""
    write_engine(tmp_path)
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_the_state_is_plain_data_from_which_a_plan_is_made(host):
    (host / "names").write_text("vllm-chat\nregistry\n")
    found = run_module("container_runtime_state", packager="deb", _ansible_check_mode=True)
    state = HostState.from_dict(found["host"])
    docker = state.engines["docker"]
    assert (docker.version, docker.containers) == ("26.1.5+dfsg1", ["registry", "vllm-chat"])
    assert (state.packages["docker.io"], state.held) == ("26", ["docker.io", "docker-cli"])
    assert found["changed"] is False


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
