# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of hosts, and the groups that follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.sorting import (
    MOST_CHIPS,
    RegionError,
    Sorter,
    SortingError,
    Statement,
    Tree,
    can_agree,
    read_declaration,
    read_detection,
    region_name,
    regions,
)

CATALOGUE = load_catalogue()
OF_A_RACK = "found 72, expected 1 to 4, the chips of one host with NVIDIA GB200; an NVL72 rack is 18 such hosts; "


def said(*models: tuple[str, int | None], unknown: int = 0, source: str = "declared") -> Statement:
    return Statement(source, models, unknown)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"accelerator_count": 8}, None),
        ({"accelerator": "h200"}, said(("h200", None))),
        ({"accelerator": "h200", "accelerator_count": 8}, said(("h200", 8))),
        ({"accelerator": "h200", "accelerator_count": "8"}, said(("h200", 8))),
        ({"accelerator": "cpu"}, said(("cpu", None))),
        ({"accelerators": {"l40s": 2, "h200": 4}}, said(("h200", 4), ("l40s", 2))),
        ({"accelerators": "l40s:2 h200:4"}, said(("h200", 4), ("l40s", 2))),
        # A chip that nothing can be served on never leads.
        ({"accelerators": {"v100": 8, "h200": 1}}, said(("h200", 1), ("v100", 8))),
    ],
)
def test_declared(variables, expected):
    assert read_declaration(variables, CATALOGUE) == expected


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"accelerator": "h2000"}, ["accelerator", "'h2000'", "nearest: 'h200'"]),
        ({"accelerator": "H200"}, ["'H200'", "nearest: 'h200'"]),
        ({"accelerator": "MI300X"}, ["nearest: 'mi300x'"]),
        ({"accelerator": ["h200"]}, ["accelerator", "expected the name of a model"]),
        ({"accelerator": "unknown"}, ["'unknown'", "no file of the catalogue"]),
        ({"accelerator": "h200", "accelerator_count": 0}, ["accelerator_count", "found 0", f"1 to {MOST_CHIPS}"]),
        ({"accelerator": "h200", "accelerator_count": -8}, ["found -8"]),
        ({"accelerator": "h200", "accelerator_count": 65}, ["found 65"]),
        ({"accelerator": "h200", "accelerator_count": True}, ["found true"]),
        ({"accelerator": "h200", "accelerator_count": 7.5}, ["found 7.5"]),
        ({"accelerator": "h200", "accelerator_count": "eight"}, ["found 'eight'"]),
        ({"accelerator_count": "eight"}, ["found 'eight'"]),
        ({"accelerator": "cpu", "accelerator_count": 2}, ["accelerator_count", "cpu", "expected 1"]),
        ({"accelerator": "gb200", "accelerator_count": 72}, [f"accelerator_count: {OF_A_RACK}"]),
        ({"accelerators": {"gb200": 72}}, [f"accelerators.gb200: {OF_A_RACK}"]),
        ({"accelerators": "gb200:72"}, [f"accelerators.gb200: {OF_A_RACK}"]),
        ({"accelerators": {"h200": 65}}, ["accelerators.h200: found 65, expected a whole number from 1 to 64"]),
        ({"accelerators": {}}, ["accelerators", "like {h200: 4, l40s: 2}"]),
        ({"accelerators": "h200"}, ["'h200'", "like {h200: 4, l40s: 2}"]),
        ({"accelerators": {"h200": 8, "cpu": 1}}, ["cpu", "leave it out"]),
        ({"accelerators": {"h200": 0}}, ["accelerators.h200", "found 0"]),
        ({"accelerators": {"h200": 8}, "accelerator": "h200"}, ["beside", "use one"]),
    ],
)
def test_what_cannot_be_declared(variables, words):
    with pytest.raises(SortingError) as caught:
        read_declaration(variables, CATALOGUE)
    for word in words:
        assert word in str(caught.value)


def test_an_endless_text_is_not_printed():
    with pytest.raises(SortingError) as caught:
        read_declaration({"accelerator": "x" * 100_000}, CATALOGUE)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, None),
        ("h200", None),
        ({"model": "h200"}, None),
        ({"models": {}, "unknown": []}, said(("cpu", 1), source="discovery")),
        ({"models": {"h200": 8}, "unknown": []}, said(("h200", 8), source="discovery")),
        ({"models": {"h200": 7}, "unknown": [{}]}, said(("h200", 7), unknown=1, source="discovery")),
        ({"models": {"gone": 7}}, said(unknown=7, source="discovery")),
        ({"models": {"h200": "many"}}, said(("cpu", 1), source="discovery")),
    ],
)
def test_detected(document, expected):
    assert read_detection(document, "discovery", CATALOGUE) == expected


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        (said(("h200", 8)), said(("h200", 8)), True),
        (said(("h200", None)), said(("h200", 8)), True),
        (said(("h200", 8)), said(("h200", None)), True),
        (said(("h200", 8)), said(("h200", 7)), False),
        (said(("h200", 8)), said(("h100", 8)), False),
        # One name says nothing of further kinds, also where another kind leads.
        (said(("h200", 8)), said(("h200", 8), ("l40s", 2)), True),
        (said(("l40s", 2)), said(("h200", 8), ("l40s", 2)), True),
        (said(("l40s", 3)), said(("h200", 8), ("l40s", 2)), False),
        (said(("l40s", 2)), said(("h200", None), ("l40s", None)), True),
        (said(("h200", 8)), said(("h200", 8), unknown=1), True),
        (said(("h200", 8), ("l40s", 2)), said(("h200", 8)), False),
        (said(("h200", 8), ("l40s", 2)), said(("h200", 8), ("l40s", 2)), True),
        (said(("h200", 8), ("l40s", 2)), said(("h200", 8), ("l40s", 1)), False),
        (said(("cpu", None)), said(("cpu", 1)), True),
        (said(("cpu", None)), said(("h200", 8)), False),
        (said(("cpu", None)), said(unknown=1), False),
        (said(unknown=1), said(unknown=2), True),
        (said(unknown=1), said(("h200", 8)), False),
    ],
)
def test_agree(first, other, expected):
    assert can_agree(first, other) is expected


def all_groups(groups, edges):
    """Return groups with all that lie above them."""
    found = set(groups)
    while True:
        more = {parent for parent, child in edges if child in found} - found
        if not more:
            return found
        found |= more


@pytest.mark.parametrize("model", [*CATALOGUE.models, "cpu"])
def test_every_model_is_in_its_stack_generation_and_own_group(model):
    tree = Tree(CATALOGUE)
    entry = CATALOGUE.models.get(model)
    implied = {"accel_cpu"} if entry is None else {f"accel_{x}" for x in (entry.stack, entry.generation, model)}
    assert all_groups(tree.own(model), tree.edges(tree.own(model))) == implied


def test_groups_are_nested_so_that_the_model_has_the_last_word():
    tree = Tree(CATALOGUE)
    assert tree.own("h200") == ("accel_h200",)
    assert tree.edges(["accel_h200"]) == [("accel_hopper", "accel_h200"), ("accel_cuda", "accel_hopper")]


def test_a_generation_of_two_stacks_brings_no_host_into_the_wrong_one():
    h200 = CATALOGUE.models["h200"]
    odd = replace(h200, key="odd", stack="rocm")
    # A model with the name of another one's generation.
    named = replace(h200, key="hopper", generation="cuda", stack="cann")
    catalogue = replace(CATALOGUE, models={**CATALOGUE.models, "odd": odd, "hopper": named})
    tree = Tree(catalogue)
    everything = tree.edges([f"accel_{name}" for name in [*catalogue.models, "hopper", "cuda", "rocm", "cann"]])
    for key, entry in catalogue.models.items():
        implied = {f"accel_{x}" for x in (entry.stack, entry.generation, key)}
        assert all_groups(tree.own(key), everything) == implied


def test_the_stacks_are_there_for_plays_to_name():
    assert {"accel_cuda", "accel_rocm", "accel_cann", "accel_cpu", "accel_unknown", "accelerator_conflict"} <= set(
        Tree(CATALOGUE).always
    )


def test_a_host_of_which_nothing_is_known_is_nowhere():
    assert Sorter(CATALOGUE).place(()).groups == ()


def test_two_kinds_are_in_both_groups_and_led_by_the_more_numerous():
    place = Sorter(CATALOGUE).place((said(("h200", 4), ("l40s", 2)),))
    assert place.groups == ("accel_h200", "accel_l40s")
    assert place.variables == {"accelerator": "h200", "accelerator_count": 4, "accelerator_mixed": True}


def test_what_was_found_besides_is_heard():
    place = Sorter(CATALOGUE).place((said(("h200", 8)), said(("h200", 8), ("l40s", 2), source="discovery")))
    assert place.groups == ("accel_h200", "accel_l40s")
    assert place.variables == {"accelerator_mixed": True}


def test_an_unknown_chip_is_visible_beside_known_ones():
    place = Sorter(CATALOGUE).place((said(("h200", 7), unknown=1, source="discovery"),))
    assert place.groups == ("accel_h200", "accel_unknown")


def test_a_disagreement_is_shown_and_the_declaration_stands():
    place = Sorter(CATALOGUE).place(
        (said(("h200", 8)), said(("h100", 8), source="discovery"), said(("h200", 8), source="Redfish"))
    )
    assert place.groups == ("accel_h200", "accelerator_conflict")
    assert place.variables == {"accelerator_conflict": "declared h200 x 8, but discovery says h100 x 8"}


def test_two_that_look_may_disagree_as_well():
    place = Sorter(CATALOGUE).place((said(("h200", 7), source="discovery"), said(("h200", 8), source="Redfish")))
    assert place.variables["accelerator_conflict"] == "discovery says h200 x 7, but Redfish says h200 x 8"


def test_clusters_are_below_their_sites():
    found = regions([("fra1", "de"), ("fra2", "de"), ("hel1", None), (None, "fi"), (None, None)])
    assert found.edges == [("site_de", "cluster_fra1"), ("site_de", "cluster_fra2")]
    assert found.groups[("fra1", "de")] == ("cluster_fra1",)
    assert found.groups[("hel1", None)] == ("cluster_hel1",)
    assert found.groups[(None, "fi")] == ("site_fi",)
    assert found.groups[(None, None)] == ()


def test_a_cluster_of_two_sites_is_below_none():
    found = regions([("fra1", "de"), ("fra1", "fr"), ("fra1", None)])
    assert found.edges == []
    assert found.groups[("fra1", "fr")] == ("cluster_fra1", "site_fr")
    assert found.groups[("fra1", None)] == ("cluster_fra1",)
    assert "fra1" in found.warnings[0]
    assert "de, fr" in found.warnings[0]


def test_two_names_of_one_group():
    with pytest.raises(RegionError, match="cluster_fra_1"):
        regions([("fra-1", None), ("fra_1", None)])


@pytest.mark.parametrize("value", [["fra1"], {"a": 1}, True, 1.5, "-", "  "])
def test_what_is_no_name_of_a_cluster(value):
    with pytest.raises(SortingError, match="cluster"):
        region_name("cluster", value)


@pytest.mark.parametrize(
    ("value", "name"), [(None, None), ("", None), ("fra1", "fra1"), (7, "7"), ("Köln 1", "Köln 1")]
)
def test_what_is_one(value, name):
    assert region_name("cluster", value) == name
