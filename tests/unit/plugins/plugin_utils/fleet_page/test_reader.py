# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the variables of a fleet as cheaply as possible."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.reader import (
    FleetReader,
    read_fleet,
)


class HostVars:
    """Stands for Ansible's hostvars: raw variables by host."""

    def __init__(self, hosts):
        self.hosts = hosts

    def raw_get(self, name):
        return {"inventory_hostname": name, "group_names": ["g"], **self.hosts[name]}


def read(**hosts):
    found, models = read_fleet(hosts, FleetReader(HostVars(hosts), DataLoader()))
    return {host.name: host for host in found}, models


def one(**variables):
    return read(a=variables)[0]["a"]


def test_plain_variables_are_taken_as_they_are_and_others_are_left_alone():
    host = one(accelerator="h200", accelerator_count=8, password="x", cluster=None)
    assert (host.groups, dict(host.variables)) == (["g"], {"accelerator": "h200", "accelerator_count": 8})


def test_templates_are_rendered_only_where_ansible_may():
    chip = as_template("{{ kind }}")
    hosts, _models = read(a={"accelerator": chip, "kind": "h200"}, b={"accelerator": chip, "kind": "b200"})
    assert [host.variables["accelerator"] for host in hosts.values()] == ["h200", "b200"]


def test_what_cannot_be_read_is_told_of_the_host():
    host = one(accelerator=as_template("{{ nowhere }}"), cluster="c")
    assert host.problem.startswith("accelerator: ") and "nowhere" in host.problem
    assert host.variables["cluster"] == "c"


def test_of_instances_names_and_plain_recipes_are_read():
    instances = {"chat": {"recipe": "a/b", "env": {"TOKEN": "secret"}}, "x": {"recipe": "{{ y }}"}, "z": None}
    assert one(vllm_instances=instances).variables["vllm_instances"] == {
        name: {"recipe": recipe, "nodes": [], "release": None}
        for name, recipe in (("chat", "a/b"), ("x", ""), ("z", ""))
    }
    whole = one(vllm_instances=as_template("{{ all_of_them }}"), all_of_them={"chat": {"recipe": "a/b"}})
    assert whole.variables["vllm_instances"]["chat"]["recipe"] == "a/b"


def test_the_hosts_of_an_instance_are_read():
    instances = {"big": {"recipe": "a/b", "nodes": "pod"}, "two": {"nodes": ["g1", "g2"]}, "x": {"nodes": "{{ y }}"}}
    found = one(vllm_instances=instances, groups={"pod": ["g1", "g3"]}).variables["vllm_instances"]
    assert {name: entry["nodes"] for name, entry in found.items()} == {
        "big": ["g1", "g3"],
        "two": ["g1", "g2"],
        "x": [],
    }


def test_a_cached_fact_counts():
    fact = {"model": "h200", "count": 8}
    assert one(ansible_facts={"accelerator_detected": fact}).variables["accelerator_detected"] == fact


def test_hosts_may_have_catalogues_of_their_own(tmp_path):
    (tmp_path / "nvidia.yml").write_text(
        "vendor: nvidia\nmodels:\n  h999: {title: NVIDIA H999, generation: hopper, memory_gib: 141, pci_ids: {}}\n"
    )
    _hosts, models = read(a={}, b={"accelerator_catalog_path": [str(tmp_path)]}, c={"accelerator_catalog_path": []})
    assert {"h200", "h999"} <= set(models)
    with pytest.raises(AcceleratorError, match="is not a directory"):
        read(a={"accelerator_catalog_path": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "https://gw"),
        ({"gateway_address": "192.0.2.10/24", "gateway_port": "443"}, "https://192.0.2.10"),
        ({"ansible_host": "2001:db8::1", "gateway_port": 8443}, "https://[2001:db8::1]:8443"),
        ({"gateway_port": as_template("{{ port }}"), "port": 443}, "https://gw"),
        # YAML reads a plain off as false.
        ({"gateway_tls": False, "gateway_port": 80}, "http://gw"),
        ({"gateway_tls": "off"}, "http://gw:443"),
    ],
)
def test_the_address_of_a_gateway_is_as_clients_write_it(variables, address):
    assert FleetReader(HostVars({"gw": variables}), DataLoader()).gateway_address("gw") == address
