# SPDX-License-Identifier: GPL-3.0-or-later
"""The chips to count on a host and its state, from plain variables."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.chips import Host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import (
    line_of,
)

MODELS = load_catalogue().models
CHIP = {"vendor_id": "10de", "device_id": "2bb9", "address": "0000:3b:00.0"}


def detected(**models):
    model = max(models, key=models.get)
    return {"model": model, "count": models[model], "models": models, "unknown": [], "memory_mib": 144384}


def line(*groups, **variables):
    return line_of(Host("a", groups, variables), MODELS)


UNKNOWN_CHIPS = {"model": "unknown", "count": 2, "models": {}, "unknown": [CHIP, CHIP]}


@pytest.mark.parametrize(
    ("groups", "variables", "state", "chips"),
    [
        ([], {}, "unseen", ()),
        ([], {"accelerator": "h200", "accelerator_count": 8}, "declared", (("h200", 8),)),
        ([], {"accelerator": "h200", "accelerator_count": "8"}, "declared", (("h200", 8),)),
        ([], {"accelerator": "h200"}, "declared", (("h200", 1),)),
        ([], {"accelerator": "cpu"}, "declared", (("cpu", 1),)),
        ([], {"accelerators": {"h200": 4, "l40s": 2}, "accelerator": "h200"}, "declared", (("h200", 4), ("l40s", 2))),
        ([], {"accelerators": "l40s:2 h200:4"}, "declared", (("h200", 4), ("l40s", 2))),
        (["accel_cuda", "accel_hopper", "accel_h200"], {}, "declared", (("h200", 1),)),
        # The stack gaudi has the name of a model too.
        (["accel_gaudi", "accel_gaudi3"], {}, "declared", (("gaudi3", 1),)),
        (["accel_h200"], {"accelerator_detected": detected(h200=8)}, "seen", (("h200", 8),)),
        ([], {"accelerator": "h200", "accelerator_detected": detected(h200=8)}, "seen", (("h200", 8),)),
        ([], {"accelerator_detected": detected(h200=4, l40s=2)}, "seen", (("h200", 4), ("l40s", 2))),
        ([], {"accelerator": "cpu", "accelerator_detected": {"model": "cpu", "count": 1}}, "seen", (("cpu", 1),)),
        ([], {"accelerator_detected": detected(h200=8), "accelerator_stale": "x"}, "stale", (("h200", 8),)),
        ([], {"accelerator_stale": "x"}, "stale", ()),
        ([], {"accelerator_detected": UNKNOWN_CHIPS}, "unknown", (("unknown", 2),)),
        (["accel_unknown"], {}, "unknown", (("unknown", 1),)),
        ([], {"accelerator": "h20o"}, "unknown", (("h20o", 1),)),
        ([], {"accelerator_conflict": "both", "accelerator_stale": "x"}, "conflict", ()),
        (["accelerator_conflict"], {"accelerator": "h200"}, "conflict", (("h200", 1),)),
        (["accel_h100", "accel_h200"], {}, "conflict", (("h100", 1), ("h200", 1))),
    ],
)
def test_the_worst_that_is_true_is_the_state(groups, variables, state, chips):
    found = line(*groups, **variables)
    assert (found.state, found.chips) == (state, chips)


@pytest.mark.parametrize(
    ("groups", "variables", "why"),
    [
        ([], {"accelerator": "h200", "accelerator_count": 8}, "declared h200 x 8, found h200 x 7"),
        ([], {"accelerator": "h100"}, "declared h100, found h200 x 7"),
        ([], {"accelerator": "cpu"}, "declared cpu, found h200 x 7"),
        (["accel_h100"], {}, "declared h100, found h200 x 7"),
        ([], {"accelerators": {"h200": 7, "l40s": 1}}, "declared h200 x 7, l40s x 1, found h200 x 7"),
    ],
)
def test_a_disagreement_is_seen_without_the_inventory_plugin(groups, variables, why):
    found = line(*groups, **variables, accelerator_detected=detected(h200=7))
    assert (found.state, found.why) == ("conflict", why)


def test_reasons_say_what_to_do():
    assert "10de:2bb9 is in no file" in line(accelerator_detected=UNKNOWN_CHIPS).why
    assert "nearest: 'mi300x'" in line(accelerator="mi300").why
    assert line_of(Host("a", [], {}, "accelerator: 'x' is undefined"), MODELS).why == "accelerator: 'x' is undefined"
    assert all(line(**given).todo for given in ({}, {"accelerator_stale": "x"}, {"accelerator_conflict": "x"}))
