# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host's container engines, on its way through a module's result."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import EngineState, HostState

DOCKER = EngineState("docker", "/usr/bin/docker", "28.1.0", containers=("vllm-chat",), insecure=("mirror:5000",))
PODMAN = EngineState("podman", "/usr/bin/podman", "5.4.2", containers=("a", "b"))


def test_what_is_read_on_a_host_is_what_the_controller_gets():
    state = HostState(engines={"docker": DOCKER}, packages={"docker-ce": "28"}, held=["docker-ce"], apparmor=True)
    found = HostState.from_dict(json.loads(json.dumps(state.as_dict())))
    assert found.as_dict() == json.loads(json.dumps(state.as_dict()))
    assert found.engines["docker"].containers == ["vllm-chat"] and found.engines["docker"].daemon


def test_the_containers_of_all_engines_run():
    assert HostState(engines={"docker": DOCKER, "podman": PODMAN}).running == ["vllm-chat", "a", "b"]
    assert HostState().running == []
