# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest

CATALOG = Path(__file__).resolve().parents[3] / "catalog" / "weights"
SCHEMA = json.loads((CATALOG / "schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
MANIFESTS = sorted(CATALOG.rglob("*.yml"))


def load(path):
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_follows_the_schema_and_the_code(path):
    VALIDATOR.validate(load(path))
    assert parse_manifest(load(path)).repository == str(path.relative_to(CATALOG).with_suffix(""))


@pytest.mark.parametrize(
    "change",
    [{"revision": "main"}, {"repository": "x"}, {"files": {"../a": {"size": 1, "sha256": "0" * 64}}}, {"more": 1}],
)
def test_schema_and_code_refuse_alike(change):
    wrong = {**load(MANIFESTS[0]), **change}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(wrong)
    with pytest.raises(WeightsError):
        parse_manifest(wrong)


@pytest.mark.parametrize(
    ("name", "count", "size"), [("gpt-oss-20b", 3, 13_761_316_904), ("gpt-oss-120b", 15, 65_248_893_184)]
)
def test_shards_of_gpt_oss_are_all_there(name, count, size):
    files = load(CATALOG / "openai" / f"{name}.yml")["files"]
    shards = {file: entry for file, entry in files.items() if file.endswith(".safetensors")}
    # Numbered from 0, and the last number is the total.
    assert sorted(shards) == [f"model-{index:05}-of-{count - 1:05}.safetensors" for index in range(count)]
    assert sum(entry["size"] for entry in shards.values()) == size
    assert {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors.index.json"} < set(files)
