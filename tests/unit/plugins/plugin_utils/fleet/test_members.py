# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.members import (
    UnknownPlaceError,
    expand,
    members_of,
    place_of,
    spans,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

FACTS = {
    "interfaces": ["lo", "eth0", "bond-fabric", "ib0"],
    "lo": {"device": "lo", "ipv4": {"address": "127.0.0.1"}},
    "eth0": {
        "device": "eth0",
        "ipv4": {"address": "192.0.2.7"},
        "ipv6": [{"address": "2001:db8::7", "scope": "global"}],
    },
    "bond_fabric": {
        "device": "bond-fabric",
        "ipv4": {"address": "10.20.0.7"},
        "ipv4_secondaries": [{"address": "10.21.0.7"}],
        "ipv6": [{"address": "fe80::1", "scope": "link"}],
    },
}


@pytest.mark.parametrize(
    ("variables", "facts", "place"),
    [
        ({"vllm_cluster_network": "10.20.0.0/24"}, FACTS, ("10.20.0.7", "bond-fabric")),
        ({"vllm_cluster_network": "10.21.0.0/24"}, FACTS, ("10.21.0.7", "bond-fabric")),
        ({"vllm_cluster_network": "2001:db8::/64"}, FACTS, ("2001:db8::7", "eth0")),
        ({"vllm_cluster_address": "192.0.2.7"}, FACTS, ("192.0.2.7", "eth0")),
        # Without facts what is declared counts.
        ({"vllm_cluster_address": "10.20.0.7", "vllm_cluster_interface": "ib0"}, {}, ("10.20.0.7", "ib0")),
        (
            {"vllm_cluster_network": "10.20.0.0/24", "ansible_host": "10.20.0.9", "vllm_cluster_interface": "ib0"},
            {},
            ("10.20.0.9", "ib0"),
        ),
    ],
)
def test_the_place_of_a_host(variables, facts, place):
    assert place_of("a", variables, facts) == dict(zip(("address", "interface"), place, strict=True))


@pytest.mark.parametrize(
    ("variables", "facts", "message"),
    [
        ({}, FACTS, "a: vllm_cluster_network is missing; set it to the private network"),
        ({"vllm_cluster_network": "10.20.0.0/33"}, FACTS, "a: vllm_cluster_network: found '10.20.0.0/33', expected a"),
        (
            {"vllm_cluster_network": "10.99.0.0/24"},
            FACTS,
            "a: found no address in vllm_cluster_network 10.99.0.0/24 (192.0.2.7 (eth0), 2001:db8::7 (eth0), 10.20.0.7 "
            "(bond-fabric), 10.21.0.7 (bond-fabric)), expected one",
        ),
        (
            {"vllm_cluster_network": "10.0.0.0/8"},
            FACTS,
            "a: found several addresses in vllm_cluster_network 10.0.0.0/8 (10.20.0.7 (bond-fabric), 10.21.0.7 "
            "(bond-fabric)), expected one; set vllm_cluster_address for the host",
        ),
        ({"vllm_cluster_address": "10.20.0.8"}, FACTS, "a: vllm_cluster_address is 10.20.0.8, and no interface has it"),
        (
            {"vllm_cluster_address": "::1% accept #", "vllm_cluster_interface": "ib0"},
            {},
            "a: vllm_cluster_address: found '::1% accept #', expected an IP address",
        ),
        (
            {"vllm_cluster_address": "10.20.0.7", "vllm_cluster_interface": "ib0\nb"},
            {},
            "a: vllm_cluster_interface: found 'ib0\\nb', expected a name such as eth0",
        ),
    ],
)
def test_a_place_that_cannot_be(variables, facts, message):
    with pytest.raises(PlanError) as caught:
        place_of("a", variables, facts)
    assert str(caught.value).startswith(message)
    assert not isinstance(caught.value, UnknownPlaceError)


@pytest.mark.parametrize(
    "variables", [{"vllm_cluster_network": "10.20.0.0/24"}, {"vllm_cluster_address": "10.20.0.7"}], ids=list
)
def test_a_place_that_only_facts_know(variables):
    with pytest.raises(UnknownPlaceError, match="until Ansible has gathered facts"):
        place_of("a", {**variables, "ansible_host": "gpu-1.example"}, {})


def test_nodes_are_hosts_or_the_name_of_a_group():
    groups = {"all": ["a", "b", "c"], "pod": ["c", "a"]}
    instances = {"one": {"recipe": "x"}, "big": {"nodes": "pod"}, "other": {"nodes": ["a", "b"]}}
    found = expand(instances, groups)
    assert [entry.get("nodes") for entry in found.values()] == [None, ["c", "a"], ["a", "b"]]
    assert members_of(found) == ["c", "a", "b"]
    assert spans(instances) and not spans({"one": {"recipe": "x"}}) and not spans(["no mapping"])
    with pytest.raises(PlanError, match="the inventory has no host 'd'; known: a, b, c"):
        expand({"big": {"nodes": ["a", "d"]}}, groups)


@pytest.mark.parametrize("nodes", [{"a": "b"}, 7, ["a", 7], ["a", ["b"]]])
def test_nodes_of_another_kind(nodes):
    with pytest.raises(
        PlanError, match=r"vllm_instances.big.nodes: found .*, expected a group's name or a list of hosts"
    ):
        expand({"big": {"nodes": nodes}}, {"all": ["a", "b"]})


def test_what_a_host_says_beside_an_address_gets_into_no_firewall():
    """It is taken over, and others write its address into theirs."""
    said = "fd00::7%x drop\n ip6 saddr ::/0 accept #"
    facts = {"interfaces": ["eth0"], "eth0": {"device": "eth0", "ipv6": [{"address": said, "scope": "global"}, {}]}}
    with pytest.raises(PlanError, match="is unknown"):
        place_of("a", {"vllm_cluster_network": "fd00::/64"}, facts)
    facts["eth0"] = {"device": "eth0;reboot", "ipv4": {"address": "10.20.0.7"}}
    with pytest.raises(PlanError, match="expected a name such as eth0"):
        place_of("a", {"vllm_cluster_network": "10.20.0.0/24"}, facts)


@pytest.mark.parametrize(
    "said",
    [
        {"interfaces": 1}, {"interfaces": ["eth0"], "eth0": ["x"]}, {"interfaces": [[]], "[]": {"ipv4": 1}},
        {"interfaces": ["eth0"], "eth0": {"ipv4": ["x"], "ipv6": "x", "ipv4_secondaries": 7}},
    ],
)  # fmt: skip
def test_facts_of_another_shape_say_nothing(said):
    with pytest.raises(UnknownPlaceError):
        place_of("a", {"vllm_cluster_network": "10.20.0.0/24"}, said)
