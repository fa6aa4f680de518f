# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import releases
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import (
    FIGURES,
    KEYS,
    REQUIRED,
    RESULT,
    EvidenceError,
    read_document,
)

CATALOG = Path(__file__).resolve().parents[3] / "catalog" / "evidence"
SCHEMA = json.loads((CATALOG / "schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FILES = sorted(CATALOG.rglob("*.yml"))
GOOD = FILES[0]


def load(path):
    # YAML reads a date as one; JSON has texts.
    return json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))


def name_of(path):
    return str(path.relative_to(CATALOG).with_suffix(""))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_evidence_follows_the_schema_and_the_code(path):
    VALIDATOR.validate(load(path))
    read_document(load(path), name_of(path), str(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_evidence_names_what_the_catalogue_has(path):
    document = load(path)
    recipe = load_recipe(document["model"])
    assert document["accelerator"] in load_catalogue().models
    # Estimators have tables of their own releases.
    assert document["release"] in releases() or document["status"] == "estimated"
    assert document.get("preset") is None or document["preset"] in recipe["presets"]


def test_schema_and_code_know_the_same_keys():
    assert set(SCHEMA["properties"]) == set(KEYS)
    assert set(SCHEMA["required"]) == set(REQUIRED)
    assert set(SCHEMA["$defs"]["result"]["properties"]) == set(RESULT)
    assert {key for entry in SCHEMA["$defs"]["result"]["anyOf"] for key in entry["required"]} == set(FIGURES)


RESULTS = load(GOOD)["results"]


@pytest.mark.parametrize(
    "change",
    [
        {"status": "guessed"},
        {"source": ""},
        {"date": "yesterday"},
        {"model": "gpt-oss-20b"},
        {"weights": "main"},
        {"release": 0.25},
        {"accelerator": "H200"},
        {"count": 0},
        {"plan": "3f9c"},
        {"argv": "vllm serve"},
        {"env": {"A": 1}},
        {"power_limit_watts": 0},
        {"start_seconds": "47"},
        {"scores": {"mmlu": {"score": 0.7}}},
        {"results": [{**RESULTS[0], "more": 1}]},
        {"results": [{**RESULTS[0], "concurrency": 0}]},
        {"results": [{**RESULTS[0], "ttft_ms": {"median": 1}}]},
        {"results": [{key: value for key, value in RESULTS[0].items() if key not in FIGURES}]},
        {"more": 1},
    ],
    ids=str,
)
def test_schema_and_code_refuse_alike(change):
    wrong = {**load(GOOD), **change}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(wrong)
    with pytest.raises(EvidenceError):
        read_document(wrong, name_of(GOOD), "x.yml")
