# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import time

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.groups import (
    describe_absent,
    group_problems,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.members import expand
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_fleet

HOSTS = ["a", "b"]
SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
    "members": {host: {"address": f"10.0.0.{rank}", "interface": "eth1"} for rank, host in enumerate(HOSTS, 1)},
}


@pytest.fixture(scope="module")
def planned():
    instances = {"big": {"recipe": "openai/gpt-oss-120b", "nodes": HOSTS, "strategy": "multi_node_tp"}}
    settings = {**SITE, "instances": instances, "release": "0.33.0"}
    accelerator = declared_accelerator(load_catalogue(), "h200", 8)
    return {host: plan_host(host, accelerator, settings) for host in HOSTS}


@pytest.fixture
def plans(planned):
    return copy.deepcopy(planned)


def test_hosts_that_belong_together(plans):
    assert group_problems(plans) == {}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("accelerator", "h100", "accelerator is 'h100', and 'h200' on its head a"),
        ("chips", [0, 1], "chips is 2, and 8 on its head a"),
        ("vllm_version", "0.32.0", "vllm_version is '0.32.0', and '0.33.0' on its head a"),
        ("image", "other", "image is 'other', and "),
        ("revision", "f" * 40, f"revision is '{'f' * 40}', and "),
    ],
)
def test_hosts_that_differ(plans, key, value, text):
    plans["b"]["big"][key] = value
    [(problem, hosts)] = list(group_problems(plans).items())
    assert problem.startswith(f"vllm_instances.big: {text}") and hosts == ["b"]
    assert problem.endswith("on its head a; all hosts of a group need the same")


def test_hosts_with_other_arguments_and_variables(plans):
    plans["b"]["big"]["args"]["max-model-len"] = 9
    plans["b"]["big"]["env"]["VLLM_X"] = "1"
    assert [text.split(",")[0] for text in group_problems(plans)] == [
        "vllm_instances.big: args.max-model-len is 9",
        "vllm_instances.big: env.VLLM_X is '1'",
    ]


def test_a_member_without_the_instance(plans):
    plans["b"] = {}
    assert list(group_problems(plans)) == [
        "vllm_instances.big.nodes: names b, which has no instance 'big' with nodes; give it the same entry"
    ]
    # One that is not planned is another run's.
    del plans["b"]
    assert group_problems(plans) == {}


def test_hosts_that_name_different_hosts(plans):
    plans["b"]["big"]["group"]["hosts"] = ["a", "c", "b"]
    assert list(group_problems(plans)) == ["vllm_instances.big.nodes: found a, c, b, and a, b on its head a"]


def test_a_part_of_a_group_is_no_group():
    instances = {"big": {"nodes": ["a", "b"]}, "small": {}}
    assert describe_absent(instances, ["a", "b", "c"]) == []
    assert describe_absent(instances, ["b"]) == [
        "vllm_instances.big spans hosts that this run leaves out: a; a group is changed as a whole, so name all of its "
        "hosts with -l, or leave -l out"
    ]


class HostVars:
    def __init__(self, hosts):
        self.hosts = hosts

    def raw_get(self, name):
        return {"inventory_hostname": name, "group_names": [], **self.hosts[name]}


@pytest.mark.slow
def test_a_large_fleet_of_groups_is_planned_in_seconds():
    groups = {f"pod{number}": [f"h{number}-{rank}" for rank in range(8)] for number in range(64)}
    everyone = {"all": [host for hosts in groups.values() for host in hosts], **groups}
    hosts = {}
    for number, (pod, names) in enumerate(groups.items()):
        big = {"recipe": "openai/gpt-oss-120b", "nodes": pod, "strategy": "multi_node_tp"}
        for rank, host in enumerate(names):
            hosts[host] = {
                "accelerator": "h200", "accelerator_count": 8, "vllm_release": "0.33.0", "vllm_instances": {"big": big},
                "vllm_cluster_network": "10.20.0.0/16", "vllm_cluster_interface": "bond1",
                "ansible_host": f"10.20.{number}.{rank + 1}", "groups": everyone,
            }  # fmt: skip
    began = time.process_time()
    fleet = plan_fleet(list(hosts), HostReader(HostVars(hosts), DataLoader()), plan_host)
    assert fleet.problems == {}
    assert sum(len(group.hosts) for group in fleet.groups) == 512
    # Less than a second in fact.
    assert time.process_time() - began < 10


@pytest.fixture
def sides():
    """Two decode hosts and two prefill hosts."""
    hosts = {"decode": ["a", "b"], "prefill": ["c", "d"]}
    members = {host: {"address": f"10.0.0.{rank}", "interface": "eth1"} for rank, host in enumerate("abcd", 1)}
    instances = expand({"big": {"recipe": "openai/gpt-oss-120b", **hosts}}, {"all": list("abcd")})
    accelerator = declared_accelerator(load_catalogue(), "h200", 8)
    settings = {**SITE, "members": members, "instances": instances, "release": "0.33.0"}
    return {host: copy.deepcopy(plan_host(host, accelerator, settings)) for host in "abcd"}


def test_the_two_sides_may_differ_and_the_hosts_of_one_may_not(sides):
    assert group_problems(sides) == {}
    for host in "cd":
        sides[host]["big"]["args"]["max-num-seqs"] = 8
    assert group_problems(sides) == {}
    sides["d"]["big"]["args"]["max-num-seqs"] = 9
    sides["b"]["big"]["env"]["VLLM_X"] = "1"
    assert group_problems(sides) == {
        "vllm_instances.big: env.VLLM_X is '1', and nothing on its head a; all hosts of a group need the same": ["b"],
        "vllm_instances.big: args.max-num-seqs is 9, and 8 on c; all prefill hosts need the same": ["d"],
    }


def test_all_hosts_of_both_sides_need_the_same_weights_and_ports(sides):
    sides["c"]["big"]["revision"] = "f" * 40
    sides["b"]["big"]["group"]["port"] = 5700
    found = group_problems(sides)
    assert [text.split(",")[0] for text in found] == [
        "vllm_instances.big: port is 5700",
        f"vllm_instances.big: revision is '{'f' * 40}'",
    ]
