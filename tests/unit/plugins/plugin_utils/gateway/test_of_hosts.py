# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.of_hosts import (
    gateways_of,
    hosts_behind,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayError

GROUPS = {
    "all": ["a1", "a2", "b1", "lone", "ga", "gb", "gx"],
    "inference": ["a1", "a2", "b1", "lone"],
    "cluster_a": ["a1", "a2", "ga"],
    "cluster_b": ["b1", "gb"],
    "gateways": ["ga", "gb", "gx"],
}


class Variables(dict):
    """The variables of hosts, each with its groups."""

    def __init__(self, given, groups=None):
        super().__init__(given)
        self.groups = {}
        for group, hosts in (groups or GROUPS).items():
            for host in list(hosts):
                self.groups.setdefault(host, []).append(group)

    def __getitem__(self, host):
        return {**self.get(host, {}), "group_names": self.groups.get(host, [])}


def test_by_cluster_and_by_name():
    variables = {
        "ga": {"cluster": "a"},
        "gb": {"cluster": "b", "gateway_cluster": "b"},
        "gx": {"cluster": "b", "gateway_backends": ["lone", "cluster_a"]},
    }
    found = gateways_of(["a1", "b1", "lone", "ga"], GROUPS, Variables(variables))
    assert found == {"a1": ["ga", "gx"], "b1": ["gb"], "lone": ["gx"], "ga": ["gx"]}
    assert hosts_behind(found) == {"ga": ["a1"], "gx": ["a1", "lone", "ga"], "gb": ["b1"]}


def test_backends_in_a_text_are_the_names_between_its_commas():
    variables = {"ga": {"cluster": "a"}, "gb": {"cluster": "b"}, "gx": {"gateway_backends": "lone, cluster_a"}}
    found = gateways_of(["a1", "lone"], GROUPS, Variables(variables))
    assert found == {"a1": ["ga", "gx"], "lone": ["gx"]}


def test_a_gateway_without_a_cluster_serves_hosts_of_one_cluster_only():
    groups = {**GROUPS, "gateways": ["gx"]}
    with pytest.raises(GatewayError) as raised:
        gateways_of(["a1"], groups, Variables({"gx": {"gateway_backends": None}}))
    assert str(raised.value) == (
        "gx: gateway_cluster: found nothing, and the hosts of the group inference are in the clusters a, b; "
        "set gateway_cluster, or cluster for this gateway"
    )
    groups = {"inference": ["a1", "a2", "lone"], "cluster_a": ["a1", "a2"], "gateways": ["gx"]}
    found = gateways_of(["a1", "lone", "ga"], groups, Variables({}, groups))
    assert found == {"a1": ["gx"], "lone": ["gx"], "ga": []}


def test_clusters_by_variable_are_not_crossed_either():
    """Without any group cluster_*, as an inventory in one file has it."""
    groups = {"all": ["a1", "b1", "ga", "gb"], "inference": ["a1", "b1"], "gateways": ["ga", "gb"]}
    by_variable = {name: {"cluster": name[-1] if name[0] == "g" else name[0]} for name in groups["all"]}
    assert gateways_of(["a1", "b1"], groups, Variables(by_variable, groups)) == {"a1": ["ga"], "b1": ["gb"]}


def test_a_cluster_is_named_by_a_variable_or_by_a_group():
    groups = {"inference": ["a1", "a2"], "cluster_fra_1": ["a2", "ga"], "gateways": ["ga", "gb"]}
    variables = {"a1": {"cluster": "fra-1"}, "gb": {"gateway_cluster": "fra-1"}}
    assert gateways_of(["a1", "a2"], groups, Variables(variables, groups)) == {"a1": ["ga", "gb"], "a2": ["ga", "gb"]}


def test_a_variable_and_a_group_that_disagree_are_an_error():
    with pytest.raises(GatewayError, match="a2: cluster: found 'b', but the host is in the group cluster_a"):
        gateways_of(["a1"], GROUPS, Variables({"a2": {"cluster": "b"}}))


def test_hosts_without_clusters_are_behind_every_gateway():
    groups = {"inference": ["a1", "a2"], "gateways": ["gx"]}
    assert gateways_of(["a1"], groups, Variables({"gx": {}}, groups)) == {"a1": ["gx"]}


@pytest.mark.parametrize("name", ["cluster", "gateway_cluster"])
def test_a_gateway_of_a_cluster_serves_no_host_without_one(name):
    groups = {"inference": ["a1", "a2"], "gateways": ["gx"]}
    with pytest.raises(
        GatewayError, match="gx: gateway_cluster: found 'fra9', and no host of the group inference is in a cl"
    ):
        gateways_of(["a1"], groups, Variables({"gx": {name: "fra9"}}, groups))


def test_an_inventory_without_gateways():
    groups = {name: hosts for name, hosts in GROUPS.items() if name != "gateways"}
    assert gateways_of(["a1"], groups, {}) == {"a1": []}
    doors = {**groups, "doors": ["gx"]}
    assert gateways_of(["a1"], doors, Variables({"gx": {"gateway_cluster": "a"}}), "doors") == {"a1": ["gx"]}


def test_what_is_wrong_with_gateways_is_said_of_all_of_them():
    with pytest.raises(GatewayError) as raised:
        variables = {"ga": {"gateway_cluster": "c"}, "gb": {"gateway_backends": ["a9"]}, "gx": {"cluster": "a"}}
        gateways_of(["a1"], GROUPS, Variables(variables))
    first, second = str(raised.value).splitlines()
    assert first.startswith("ga: gateway_cluster: no host of the group inference is in the cluster 'c'; ")
    assert second.startswith("gb: gateway_backends: 'a9' is neither a host nor a group; known: a1, ")


class Counted(list):
    """A list that is not searched: of a fleet that would take a fleet times a fleet."""

    def __contains__(self, item):
        raise AssertionError("searched")


def test_a_fleet_is_gone_through_once():
    hosts = [f"h{number}" for number in range(10_000)]
    groups = {"all": Counted(hosts), "inference": Counted(hosts), "cluster_a": Counted(hosts), "gateways": ["ga", "gb"]}
    variables = {**{host: {"cluster": "a"} for host in hosts}, "ga": {"cluster": "a"}, "gb": {"gateway_cluster": "a"}}
    found = gateways_of(hosts, groups, variables)
    assert all(gateways == ["ga", "gb"] for gateways in found.values()) and len(found) == 10_000
