# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's tools as people published their output (tests/fixtures/amd_smi.yml)."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.bench.power import parse_power
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.answers import parse_amd_smi, parse_rocm_smi
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.counters import parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

CAPTURES = yaml.safe_load((Path(__file__).parents[4] / "fixtures/amd_smi.yml").read_text(encoding="utf-8"))


def chips_of(capture):
    text = json.dumps(capture["document"], indent=4)
    if "metric" in capture["command"]:
        return parse_counters([CommandResult(0, text), CommandResult(0, "")], "").chips
    return (parse_rocm_smi if capture["command"].startswith("rocm-smi") else parse_amd_smi)(text)


@pytest.mark.parametrize(
    "capture", CAPTURES, ids=lambda capture: f"{capture['command']}, {capture['source'].split(', ')[1]}"
)
def test_a_published_output_is_read(capture):
    found = [asdict(chip) for chip in chips_of(capture)]
    assert len(found) == len(capture["chips"])
    for chip, expected in zip(found, capture["chips"]):
        chip = json.loads(json.dumps(chip))
        for key, value in expected.items():
            same = chip[key] == (pytest.approx(value) if isinstance(value, float) else value)
            assert same, (key, chip[key], value)


def test_the_power_of_two_boards_is_their_sum():
    (two,) = [capture for capture in CAPTURES if len(capture["chips"]) == 2]
    assert parse_power("rocm", json.dumps(two["document"]), [0, 1]).watts == pytest.approx(35.7)
