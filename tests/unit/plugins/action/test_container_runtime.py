# SPDX-License-Identifier: GPL-3.0-or-later
"""The action as a playbook runs it, on hosts whose commands answer as docker's do."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail

from tests.fakes.actions import play_by_ansible, run_action, run_play
from tests.fakes.container_runtimes import system, write_engine

PLAY = """
- hosts: all
  gather_facts: false
  environment:
    PATH: "{{ tree }}:/usr/bin:/bin"
    FAKE: "{{ tree }}"
  tasks:
    - block:
        - baremetal.inference.container_runtime:
            system: "{{ system }}"
            source: distro
            registry_mirrors: "{{ mirrors | default([]) }}"
            storage: "{{ storage | default('') }}"
            restart_allowed: "{{ allowed | default(false) }}"
          register: planned
"""
MOVED = {"storage": "/data/docker"}
# Of each host: the names of its containers, and the options of its inventory.
HOSTS = {
    "settled": ("", {}),
    "mirror": ("", {"mirrors": ["mirror:5000"]}),
    "running": ("vllm-chat\nregistry\n", MOVED),
    "allowed": ("vllm-chat\nregistry\n", {**MOVED, "allowed": True}),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Make all hosts; return their variables."""
    root = tmp_path_factory.mktemp("fleet")
    hosts = {}
    for name, (containers, variables) in HOSTS.items():
        tree = root / name
        tree.mkdir()
        write_engine(tree)
        (tree / "names").write_text(containers)
        hosts[name] = {**variables, "tree": str(tree), "system": system("Debian_13")}
    return hosts


@pytest.fixture(scope="module")
def fleet(hosts):
    """Return the result of each host."""
    return {name: run_play(PLAY, name, variables) for name, variables in hosts.items()}


def test_ansible_comes_to_the_same(hosts, fleet, tmp_path):
    found = play_by_ansible(tmp_path, PLAY, {name: hosts[name] for name in ("mirror", "running")})
    assert found == {name: fleet[name] for name in found}


def test_a_host_that_matches_the_request_needs_nothing(fleet):
    planned = fleet["settled"]["planned"]
    assert (planned["changes"], planned["installs"], planned["changed"]) == (False, False, False)


def test_a_plan_is_plain_data(fleet):
    plan = fleet["mirror"]["planned"]["plan"]
    assert plan["reload"] == ["registry-mirrors"]
    assert plan["files"] == []
    assert plan["settings_files"] == [
        {
            "path": "/etc/docker/daemon.json",
            "settings": {"registry-mirrors": ["https://mirror:5000"]},
            "validate": "dockerd --validate --config-file=%s",
        }
    ]


def test_containers_that_a_restart_would_stop_are_named_with_the_host(fleet):
    assert fleet["running"]["failure"] == (
        "running: docker must be restarted (data-root /var/lib/docker -> /data/docker), which stops its "
        "containers: registry, vllm-chat; stop them first, or set container_runtime_restart_allowed: true"
    )
    assert fleet["allowed"]["planned"]["plan"]["restart"] == ["data-root /var/lib/docker -> /data/docker"]


def test_a_mirror_with_a_password_is_refused_before_the_host_is_asked():
    options = {"system": system("Debian_13"), "source": "mirror", "mirror_url": "https://site:geheim@mirror/vendors"}
    with pytest.raises(
        AnsibleActionFail, match=r"^gpu-1: container_runtime_mirror_url: found an address with"
    ) as caught:
        run_action("container_runtime", options, {"inventory_hostname": "gpu-1"})
    assert "geheim" not in str(caught.value)
