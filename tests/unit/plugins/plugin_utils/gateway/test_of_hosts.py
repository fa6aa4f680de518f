# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.of_hosts import (
    clusters_of,
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


def test_by_cluster_and_by_name():
    variables = {
        "ga": {"cluster": "a"},
        "gb": {"cluster": "a", "gateway_cluster": "b"},
        "gx": {"cluster": "b", "gateway_backends": ["lone", "cluster_a"]},
    }
    found = gateways_of(["a1", "b1", "lone", "ga"], GROUPS, variables)
    assert found == {"a1": ["ga", "gx"], "b1": ["gb"], "lone": ["gx"], "ga": ["gx"]}
    assert hosts_behind(found) == {"ga": ["a1"], "gx": ["a1", "lone", "ga"], "gb": ["b1"]}


def test_a_gateway_without_a_cluster_stands_before_all_that_serve():
    found = gateways_of(["a1", "lone", "ga"], {**GROUPS, "gateways": ["gx"]}, {"gx": {"gateway_backends": None}})
    assert found == {"a1": ["gx"], "lone": ["gx"], "ga": []}


def test_an_inventory_without_gateways():
    groups = {name: hosts for name, hosts in GROUPS.items() if name != "gateways"}
    assert gateways_of(["a1"], groups, {}) == {"a1": []}
    assert gateways_of(["a1"], {**groups, "doors": ["gx"]}, {"gx": {}}, "doors") == {"a1": ["gx"]}


def test_what_is_wrong_with_gateways_is_said_of_all_of_them():
    with pytest.raises(GatewayError) as raised:
        gateways_of(["a1"], GROUPS, {"ga": {"cluster": "c"}, "gb": {"gateway_backends": ["a9"]}, "gx": {}})
    first, second = str(raised.value).splitlines()
    assert first.startswith("ga: gateway_cluster: the inventory has no group cluster_c; ")
    assert second.startswith("gb: gateway_backends: 'a9' is neither a host nor a group; known: a1, ")


def test_clusters():
    assert clusters_of(["a", "b", "c"], {"a": {"cluster": "x"}, "b": {}, "c": {"cluster": None}}) == {
        "a": "x", "b": "", "c": "",
    }  # fmt: skip


class Counted(list):
    """A list that is not searched: of a fleet that would take a fleet times a fleet."""

    def __contains__(self, item):
        raise AssertionError("searched")


def test_a_fleet_is_gone_through_once():
    hosts = [f"h{number}" for number in range(10_000)]
    groups = {"all": Counted(hosts), "inference": Counted(hosts), "cluster_a": Counted(hosts), "gateways": ["ga", "gb"]}
    found = gateways_of(hosts, groups, {"ga": {"cluster": "a"}, "gb": {"gateway_cluster": "a"}})
    assert all(gateways == ["ga", "gb"] for gateways in found.values()) and len(found) == 10_000
