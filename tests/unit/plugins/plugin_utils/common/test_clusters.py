# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.clusters import (
    ClusterError,
    cluster_of,
    clusters_of,
    one_spelling,
    same_cluster,
)


@pytest.mark.parametrize(
    ("value", "groups", "cluster"),
    [
        ("fra1", [], "fra1"),
        (7, [], "7"),
        (None, ["all", "cluster_fra1"], "fra1"),
        ("", ["cluster_fra1"], "fra1"),
        ("fra-1", ["inference", "cluster_fra_1"], "fra-1"),
        (None, ["inference"], ""),
    ],
)
def test_the_variable_names_the_cluster_and_else_the_group(value, groups, cluster):
    assert cluster_of(value, groups) == cluster


@pytest.mark.parametrize(
    ("value", "groups", "message"),
    [
        ("fra1", ["cluster_hel1"], "cluster: found 'fra1', but the host is in the group cluster_hel1; correct one"),
        ("fra1", ["cluster_fra1", "cluster_hel1"], "cluster: found 'fra1', but the host is in the group cluster_hel1"),
        (None, ["cluster_b", "cluster_a"], "the host is in the groups of several clusters, cluster_a, cluster_b; keep"),
    ],
)
def test_disagreement_is_an_error(value, groups, message):
    with pytest.raises(ClusterError, match=message):
        cluster_of(value, groups)


def test_one_cluster_has_one_name():
    hosts = {
        "a": {"cluster": "fra-1", "group_names": ["cluster_fra_1"]},
        "b": {"group_names": ["cluster_fra_1"]},
        "c": {},
    }
    assert clusters_of(hosts, hosts) == {"a": "fra-1", "b": "fra-1", "c": ""}
    assert one_spelling(["fra_1", "hel1", ""]) == {"": "", "fra_1": "fra_1", "hel1": "hel1"}
    assert same_cluster("fra_1", "fra-1") and not same_cluster("fra1", "fra2")


def test_the_problems_of_all_hosts_are_reported():
    wrong = {"cluster": "x", "group_names": ["cluster_y"]}
    with pytest.raises(ClusterError, match=r"(?s)^a: cluster: found 'x'.*\nb: cluster: found 'x'"):
        clusters_of(["a", "b"], {"a": wrong, "b": wrong})


@pytest.mark.parametrize(("value", "kind"), [(["fra1"], "a list"), ({"fra1": 1}, "a mapping")])
def test_a_list_or_mapping_is_no_name(value, kind):
    with pytest.raises(ClusterError) as caught:
        cluster_of(value, [])
    assert str(caught.value) == f"cluster: found {kind}, expected the name of a cluster"


def test_a_name_of_several_lines_is_no_cluster():
    with pytest.raises(ClusterError, match=r"^cluster: found 'a b.n', expected the name of a cluster on one line$"):
        cluster_of("a b\n", ())
