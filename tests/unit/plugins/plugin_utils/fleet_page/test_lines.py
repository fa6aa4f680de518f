# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of one host, from plain variables."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.chips import Host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import (
    fleet_lines,
    line_of,
    seconds_of,
    totals,
)

MODELS = load_catalogue().models


def detected(**models):
    model = max(models, key=models.get)
    return {"model": model, "count": models[model], "models": models, "unknown": [], "memory_mib": 144384}


def line(*groups, **variables):
    return line_of(Host("a", groups, variables), MODELS)


def test_places_come_from_variables_or_else_from_groups():
    found = line("cluster_x", "site_fra", cluster="x", site=7)
    assert (found.site, found.cluster) == ("7", "x")
    found = line("cluster_a", "site_fra", site=["no", "text"])
    assert (found.site, found.cluster) == ("fra", "a")


def test_a_cluster_that_variable_and_group_name_differently_is_a_problem():
    found = line("cluster_fra1", cluster="x", accelerator="h200")
    assert (found.cluster, found.state) == ("x", "unknown")
    assert found.why == "cluster: found 'x', but the host is in the group cluster_fra1; correct one of them"
    assert line("cluster_b", "cluster_a").cluster == ""


def test_one_cluster_is_counted_once_however_it_is_spelt():
    hosts = [Host("a", ["cluster_fra_1"], {"cluster": "fra-1"}), Host("b", ["cluster_fra_1"], {})]
    assert totals(fleet_lines(hosts, MODELS))["clusters"] == 1


def test_gateways_and_mirrors_are_no_unknown_hosts():
    hosts = [
        Host("gw", ["gateways"], {}),
        Host("mirror", ["mirrors"], {}),
        Host("both", ["gateways", "inference"], {}),
        Host("has", ["gateways"], {"accelerator": "cpu"}),
        Host("new", [], {}),
    ]
    assert [entry.host for entry in fleet_lines(hosts, MODELS)] == ["has", "both", "new"]


@pytest.mark.parametrize(
    "odd",
    [{"accelerator_detected": value} for value in ("x", [], 5, {"models": 3}, {"unknown": 3}, {"unknown": [3]})]
    + [{"accelerators": value} for value in ([], 5, {"h200": None}, {"h200": -1}, "::", {3: 10**400})]
    + [{"accelerator": ["h200"]}, {"accelerator": {}}, {"accelerator_count": float("inf"), "accelerator": "h200"}]
    + [{"accelerator_discovered_at": "soon"}, {"accelerator_discovered_at": 10**400}, {"cluster": True}]
    + [{"vllm_instances": value} for value in ("x", ["chat"], {"chat": 5}, {3: {"recipe": ["x"]}})],
)
def test_nothing_is_too_odd(odd):
    line(**odd)


def test_what_it_serves_and_what_was_found_is_told():
    found = line(
        vllm_instances={"embed": {"recipe": "BAAI/bge-m3"}, "chat": {}},
        accelerator_detected={**detected(h200=8), "driver_version": "580.95.05"},
        accelerator_discovered_at="2026-11-21T14:40:00Z",
    )
    assert found.serves == (("chat", ""), ("embed", "BAAI/bge-m3"))
    assert found.facts == ("141 GiB each", "driver 580.95.05")
    together = line(vllm_instances={"big": {"recipe": "a/b", "nodes": [found.host, "gpu-8", "gpu-9"]}})
    assert together.serves == (("big", "a/b", "gpu-8, gpu-9"),)
    assert found.seen_at == 1795272000


@pytest.mark.parametrize("text", ["2026-11-21T14:40:00Z", "2026-11-21T15:40:00+01:00", "2026-11-21T14:40:00"])
def test_times(text):
    assert seconds_of(text) == 1795272000


def test_hosts_are_sorted_by_place_accelerator_and_number_whatever_the_order():
    hosts = [
        Host("gpu-10", [], {"accelerator": "h200", "cluster": "c2"}),
        Host("gpu-9", [], {"accelerator": "h200", "cluster": "c2"}),
        Host("gpu-1", [], {"cluster": "c2"}),
        Host("gpu-11", [], {"accelerator": "a100", "cluster": "c10"}),
        Host("amd-1", [], {"accelerator": "mi300x", "cluster": "c2"}),
        Host("9" * 5000, [], {}),
    ]
    names = [found.host for found in fleet_lines(hosts, MODELS)]
    assert names == ["9" * 5000, "amd-1", "gpu-9", "gpu-10", "gpu-1", "gpu-11"]
    assert fleet_lines(hosts[::-1], MODELS) == fleet_lines(hosts, MODELS)


def test_totals():
    hosts = [
        Host("a", ["cluster_c", "site_s"], {"accelerators": {"h200": 4, "l40s": 2}}),
        Host("b", ["cluster_c", "site_s"], {"accelerator": "h200", "accelerator_count": 8}),
        Host("c", [], {"accelerator": "cpu"}),
        Host("d", [], {}),
    ]
    assert totals(fleet_lines(hosts, MODELS)) == {
        "hosts": 4,
        "chips": 14,
        "sites": 1,
        "clusters": 1,
        "states": {
            "sick": 0,
            "conflict": 0,
            "unknown": 0,
            "stale": 0,
            "drained": 0,
            "drifted": 0,
            "serves": 0,
            "declared": 3,
            "seen": 0,
            "unseen": 1,
        },
        "accelerators": {
            "cpu": {"hosts": 1, "chips": 0},
            "h200": {"hosts": 2, "chips": 12},
            "l40s": {"hosts": 1, "chips": 2},
        },
    }


def test_clients_call_a_model_by_its_own_names_else_by_its_recipe():
    instances = {
        "chat": {"recipe": "openai/gpt-oss-20b"},
        "code": {"recipe": "org/code", "served_model_names": ["code", "code-large"]},
        "odd": {"recipe": "org/odd", "served_model_names": "{{ names }}"},
        "none": "text",
    }
    assert dict(line_of(Host("gpu-1", (), {"vllm_instances": instances}), {}).answers) == {
        "chat": ("openai/gpt-oss-20b",),
        "code": ("code", "code-large"),
        "odd": (),
    }
    assert line_of(Host("gpu-1", (), {"vllm_instances": []}), {}).answers == ()
