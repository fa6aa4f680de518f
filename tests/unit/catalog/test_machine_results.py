# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of playbooks/accept.yml that were sent in: their schema takes what the playbook writes, and nothing else."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.acceptance.report import result_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue

from tests.unit.plugins.plugin_utils.acceptance.test_judge import CHIPS, healthy

MACHINES = Path(__file__).resolve().parents[3] / "catalog/evidence/machines"
SCHEMA = json.loads((MACHINES / "schema.json").read_text())
DETECTED = {
    "model": "h200",
    "stack": "cuda",
    "count": 2,
    "driver_version": "580.159.04",
    "devices": [{"address": chip} for chip in CHIPS],
}


def problems_of(document, place):
    """Return what is wrong with a result that lies at a place below MACHINES."""
    found = [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]
    if found:
        return found
    machine = document["accelerator"]
    expected = f"{machine['model']}x{machine['count']}/{document['date'][:10]}"
    if not place.startswith(expected):
        found.append(f"it lies at {place}, expected {expected}.json")
    if machine["model"] not in load_catalogue().models:
        found.append(f"the catalogue has no {machine['model']}")
    return found


@pytest.fixture
def document():
    parts = {**healthy(), "accelerator": DETECTED, "minutes": 2.0}
    result, _judgement = result_of("gpu-1", "baremetal.inference 0.8.0", 1795473900, parts)
    return json.loads(json.dumps(result))


def test_the_schema_takes_what_the_playbook_writes(document):
    assert document["accepted"]
    assert problems_of(document, "h200x2/2026-11-23.json") == []
    # A second one of the same day.
    assert problems_of(document, "h200x2/2026-11-23-site-b.json") == []


def test_the_schema_knows_each_key_of_a_result(document):
    assert set(SCHEMA["properties"]) == set(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("minutes",), 0.02),
        (("figures",), []),
        (("figures", 0, "found"), 0),
        (("accelerator", "stack"), "cpu"),
        (("accelerator", "count"), 4),
        (("accelerator", "model"), "h2000"),
        (("tool",), "by hand"),
        (("more",), 1),
    ],
    ids=str,
)
def test_results_that_prove_nothing_are_refused(document, path, value):
    wrong = copy.deepcopy(document)
    inner = wrong
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert problems_of(wrong, "h200x2/2026-11-23.json")


def test_each_result_in_the_repository_is_one():
    for path in sorted(MACHINES.rglob("*.json")):
        if path.name != "schema.json":
            assert problems_of(json.loads(path.read_text()), str(path.relative_to(MACHINES))) == [], path
