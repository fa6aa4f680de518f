# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of hosts as plain data; test_plans.py plans what is read."""

from __future__ import annotations

import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet import host_reader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import (
    FleetError,
    HostReader,
    UnrenderedError,
    needed,
)

INSTANCES = {"chat": {"recipe": "openai/gpt-oss-20b"}}


class HostVars(dict):
    """Stands for Ansible's hostvars."""

    raw_get = dict.get


def reader(**hosts):
    return HostReader(HostVars(hosts), DataLoader())


def read(**variables):
    return dict(reader(a={"vllm_instances": INSTANCES, **variables}).read("a"))


def test_values_are_texts_of_json_and_defaults_lie_below_them():
    found = read(accelerator="h200", accelerator_count=8)
    assert json.loads(found["vllm_instances"]) == INSTANCES
    assert (found["accelerator"], found["accelerator_count"]) == ('"h200"', "8")
    assert json.loads(found["vllm_weights_root"]) == "/srv/models" and "accelerator_mec_firmware" not in found
    assert set(needed()) - set(found) == {"__vllm_members", "ansible_managed"}


def test_equal_hosts_are_read_alike_and_others_are_not():
    fleet = reader(a={"vllm_instances": INSTANCES}, b={"vllm_instances": dict(INSTANCES)}, c={"vllm_instances": {}})
    assert fleet.read("a") == fleet.read("b") != fleet.read("c")


def test_groups_of_accelerators_and_purposes_are_read_and_others_are_not():
    found = json.loads(read(group_names=["accel_h200", "inference", "racks", "gateways"])["group_names"])
    assert found == ["accel_h200", "inference", "gateways"]
    assert read(accelerator_partition="all-1g.18gb")["accelerator_partition"] == '"all-1g.18gb"'


def test_true_is_not_1_and_a_template_is_rendered():
    assert (read(vllm_strict=True)["vllm_strict"], read(vllm_strict=1)["vllm_strict"]) == ("true", "1")
    found = read(weights_root=as_template("/data/{{ site }}"), site="fra")
    assert json.loads(found["vllm_weights_root"]) == "/data/fra"


def test_what_cannot_be_rendered_is_named_with_its_variable():
    with pytest.raises(UnrenderedError, match="vllm_weights_root: "):
        read(vllm_weights_root=as_template("{{ nowhere }}"))


def test_of_secrets_only_names_and_problems_are_read():
    found = read(vllm_secrets={"chat": {"VLLM_API_KEY": "sk-secret", "B": "", "A": "x\ny"}})
    names = json.loads(found["vllm_secrets"])["chat"]
    assert list(names) == ["A", "B", "VLLM_API_KEY"] and names["VLLM_API_KEY"] == "" and names["A"] and names["B"]
    assert "sk-secret" not in str(found)
    for secrets in ({"chat": "sk-secret"}, "sk-secret"):
        with pytest.raises(FleetError, match=r"vllm_secrets(\.chat)?: found a text, expected a mapping") as caught:
            read(vllm_secrets=secrets)
        assert "sk-secret" not in str(caught.value)


def test_misspelt_variables_and_options_on_the_wrong_hosts_are_warnings():
    groups = {"gateways": ["gw"], "all": ["a", "gw"]}
    fleet = reader(
        a={"vllm_instances": INSTANCES, "ansible_hots": "10.0.0.1", "gateway_port": 443, "groups": groups}, gw={},
    )  # fmt: skip
    fleet.read("a")
    texts = " | ".join(fleet.warnings)
    assert "ansible_hots is no variable of Ansible; nearest: 'ansible_host'" in texts
    assert "gateway_port: set here, read on the hosts of the group gateways, and set for none of them" in texts
    assert host_reader._misspelt_connection("ansible_users", is_list=True) == ""
    assert host_reader._misspelt_connection("ansible_zzzzz", is_list=False) == ""


def test_two_hosts_of_one_purpose_with_one_address_are_a_warning():
    one = {"vllm_instances": INSTANCES, "ansible_host": "10.0.0.1"}
    fleet = reader(a=one, b=dict(one), c={**one, "ansible_port": 2222}, d={**one, "group_names": ["gateways"]})
    for host in "abcd":
        fleet.read(host)
    assert fleet.warnings == {"ansible_host: 10.0.0.1 is the address of a too; give each host its own": ["b"]}


def test_instances_are_declared_even_if_they_are_none():
    fleet = reader(a={}, b={"vllm_instances": {}}, c={"vllm_instances": as_template("{{ own }}"), "own": {"x": {}}})
    assert not fleet.declares_instances(["a"]) and fleet.declares_instances(["a", "b"])
    assert fleet.names_elsewhere({"x", "y"}, ["a", "b", "c"]) == ({"y"}, {"x"})


def test_hosts_of_an_instance_are_read_with_their_places():
    place = {"vllm_cluster_address": "10.0.0.1", "vllm_cluster_interface": "eth1"}
    groups = {"pod": ["a", "b"], "all": ["a", "b"]}
    own = {"vllm_instances": {"big": {"recipe": "x", "nodes": ["a", "b"]}}, "groups": groups, **place}
    fleet = reader(a=own, b={**place, "vllm_cluster_address": "10.0.0.2"})
    found = dict(fleet.read("a"))
    assert json.loads(found[host_reader.MEMBERS])["b"] == {"address": "10.0.0.2", "interface": "eth1"}
    assert fleet.spanning["a"]["big"]["nodes"] == ["a", "b"] and fleet.all_hosts("a") == ["a", "b"]
