# SPDX-License-Identifier: GPL-3.0-or-later
"""The action gateways_info in its own play; no host is connected to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.actions import ACTIONS

TOP = Path(__file__).resolve().parents[4]


def run(directory, groups, hosts, **arguments):
    """Run the action over an inventory; return the status, and its result or the output."""
    (directory / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    tasks = [
        {"baremetal.inference.gateways_info": {"hosts": hosts, **arguments}, "register": "found", "run_once": True},
        {"keep_result": {"value": "{{ found }}", "dest": str(directory / "found.json")}, "run_once": True},
    ]  # fmt: skip
    (directory / "show.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    words = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        str(directory / "show.yml"),
        "-i",
        str(directory / "hosts.json"),
    ]
    done = subprocess.run(
        words, cwd=TOP, check=False, capture_output=True, text=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
             "ANSIBLE_ACTION_PLUGINS": str(ACTIONS)},
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode:
        return done.returncode, said
    return 0, {**json.loads((directory / "found.json").read_text()), "said": said}


def groups(**gateways):
    return {
        "inference": {"hosts": {"a1": {"cluster": "a"}, "b1": {"cluster": "{{ place }}", "place": "b"}, "lone": {}}},
        "cluster_a": {"hosts": {"a1": {}}},
        "cluster_b": {"hosts": {"b1": {}}},
        "gateways": {"hosts": gateways},
    }


def test_variables_of_gateways_and_hosts_are_templated_as_their_own(tmp_path):
    doors = {
        "ga": {"cluster": "a"},
        "gb": {"gateway_cluster": "{{ of | lower }}", "of": "B"},
        "gx": {"gateway_backends": ["{{ served }}"], "served": "lone"},
    }
    rc, found = run(tmp_path, groups(**doors), ["a1", "b1", "lone"])
    assert rc == 0, found
    assert found["gateways"] == {"a1": ["ga"], "b1": ["gb"], "lone": ["gx"]}
    assert found["hosts"] == {"ga": ["a1"], "gb": ["b1"], "gx": ["lone"]}
    assert found["clusters"] == {"a1": "a", "b1": "b", "lone": ""} and not found["changed"]


POD = {"big": {"nodes": "pod"}, "chat": {}}


def test_an_instance_over_several_hosts_is_one(tmp_path):
    hosts = {name: {"cluster": "a", "vllm_instances": POD} for name in ("h1", "h2")}
    hosts["h3"] = {"cluster": "a", "vllm_instances": {"chat": {"model": "{{ nowhere }}"}}}
    gateway = {"hosts": {"ga": {"cluster": "a"}}}
    children = {"inference": {"hosts": hosts}, "pod": {"hosts": {"h1": {}, "h2": {}}}, "gateways": gateway}
    rc, found = run(tmp_path, children, ["h2"])
    assert rc == 0, found
    assert found["instances"] == [{"instance": "big", "hosts": ["h1", "h2"]}]
    assert found["groups"] == {"ga": [["h1--big", "h2--big"]]}
    assert found["hosts"] == {"ga": ["h2"]} and found["gateways"] == {"h1": ["ga"], "h2": ["ga"]}
    rc, found = run(tmp_path, children, ["h3"])
    assert rc == 0 and found["groups"] == {"ga": []} and found["instances"] == []
    rc, found = run(tmp_path, children, ["h1", "h2", "h3"], instance="big")
    assert rc == 0 and found["hosts"] == {"ga": []} and found["groups"] == {"ga": [["h1--big", "h2--big"]]}
    rc, said = run(tmp_path, children, ["h1"], instance="bigg")
    assert rc and "instance: found 'bigg', expected an instance that spans several hosts; nearest: 'big'" in said, said


def test_one_clear_error(tmp_path):
    rc, said = run(tmp_path, groups(ga={"cluster": "c"}), ["a1"])
    assert rc and "ga: gateway_cluster: no host of the group inference is in the cluster 'c'; " in said, said
    rc, said = run(tmp_path, groups(ga={"cluster": "a"}), ["a11"])
    # ansible-core 2.18 prints the message as YAML, with each quote doubled.
    assert rc and "hosts: the inventory has no a11 (nearest: 'a1')" in said.replace("''", "'"), said
    rc, said = run(tmp_path, groups(ga={"gateway_cluster": "{{ nowhere }}"}), ["a1"])
    assert rc and "ga: gateway_cluster" in said and "nowhere" in said, said
