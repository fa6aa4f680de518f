# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of groups."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.group_names import (
    misspelt_groups,
    models_of_groups,
    name_region_group,
    unknown_groups,
)

MODELS = load_catalogue().models


@pytest.mark.parametrize(
    ("groups", "models"),
    [
        (["accel_h200", "accel_hopper", "accel_cuda", "inference"], ["h200"]),
        (["accel_unknown", "accel_cpu"], ["cpu", "unknown"]),
        (["accel_nothing", "h200"], []),
    ],
)
def test_groups_name_models(groups, models):
    assert models_of_groups(groups, MODELS) == models


def test_groups_of_no_model_generation_or_stack_are_found():
    good = ["accel_h200", "accel_hopper", "accel_cuda", "accel_cpu", "accel_unknown", "inference"]
    found = unknown_groups([*good, "accelerator_conflict", "accel_h20O", "accel_b20"], MODELS)
    assert found == ["accel_b20", "accel_h20O"]


def test_a_region_becomes_a_valid_group_name():
    assert name_region_group("cluster", "fra-1.a") == "cluster_fra_1_a"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("inferrence", "inference"),
        ("Inference", "inference"),
        ("gatways", "gateways"),
        ("gateway", "gateways"),
        ("mirors", "mirrors"),
        ("acel_h200", "accel_h200"),
        ("clustr_fra1", "cluster_fra1"),
        ("Cluster_fra1", "cluster_fra1"),
        ("clustr_FRA1", "cluster_FRA1"),
        ("cluster_FRA1", None),
        ("Accel_h200", "accel_h200"),
        ("INFERENCE", "inference"),
        ("eu_inference", None),
        ("ml-inference", None),
        ("Inference_eu", None),
        ("gateway1", None),
        ("mirror1", None),
        ("cluster1_nodes", None),
        ("inference_2", None),
        ("gateways_fra1", None),
        ("inference2", None),
        ("clusters_eu", None),
        ("accel_h200", None),
        ("cluster_x", None),
        ("interfaces", None),
        ("site_a", None),
    ],
)
def test_a_group_that_misspells_one_of_the_collection_is_found(name, near):
    assert misspelt_groups({name: ["gpu-1"], "all": ["gpu-1"]}) == ({name: near} if near else {})


def test_a_group_beside_the_right_one_is_the_sites_own():
    groups = {"gateways": ["gw-1", "gw-2"], "gateway": ["router-1"], "gateway_s": ["gw-1"], "inferenc": []}
    assert misspelt_groups(groups) == {}
    assert misspelt_groups({**groups, "gatways": ["gw-1", "gw-3"]}) == {"gatways": "gateways"}
