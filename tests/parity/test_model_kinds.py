# SPDX-License-Identifier: GPL-3.0-or-later
"""What this collection knows of vLLM 0.33.0's models: what each is for, and the words of a start that fails."""

from __future__ import annotations

import ast

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint import model_kind
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import CHAT_TEMPLATES
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_families
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.start_failures import VLLM

from tests.fakes.wheelhouse import ROOT
from tests.parity.conftest import fetched
from tests.parity.real import NEWEST
from tools.vllm.fetch_vllm_release import sources

# The registry's tables, and the kinds that their models may have.
TABLES = {
    "_TEXT_GENERATION_MODELS": {"write"},
    "_MULTIMODAL_MODELS": {"write", "transcription", "realtime"},
    "_EMBEDDING_MODELS": {"embedding"},
    "_LATE_INTERACTION_MODELS": {"pooling"},
    "_REWARD_MODELS": {"pooling"},
    "_TOKEN_CLASSIFICATION_MODELS": {"classify"},
    "_SEQUENCE_CLASSIFICATION_MODELS": {"classify", "rerank"},
}
# Symptoms of families that libraries below vLLM write.
NOT_VLLM = {
    "an illegal memory access was encountered",
    "mla_combine.cu",
    "is not defined for option 'gpu-name'",
    "does not support this GEMM problem",
}


@pytest.fixture(scope="module")
def models():
    """vLLM's models: file and class by architecture, of each table."""
    path = fetched(sources, NEWEST) / "vllm" / "model_executor" / "models"
    tree = ast.parse((path / "registry.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if getattr(target, "id", None) in TABLES:
            pairs = zip(node.value.keys, node.value.values)
            found[target.id] = {key.value: ast.literal_eval(value)[:2] for key, value in pairs if key is not None}
    assert set(found) == set(TABLES)
    return path, found


def test_the_kind_is_that_of_the_table(models):
    _path, tables = models
    # Text models that some repositories serve for embeddings: modules.json says so.
    writes = {*tables["_TEXT_GENERATION_MODELS"], *tables["_MULTIMODAL_MODELS"]}
    wrong = {
        name: (table, model_kind.kind_of(name))
        for table, names in tables.items()
        for name in names
        if model_kind.kind_of(name) not in TABLES[table] and not (table == "_EMBEDDING_MODELS" and name in writes)
    }
    # A model of two tables is what the first one that vLLM asks says.
    assert {name: found for name, found in wrong.items() if sum(name in names for names in tables.values()) == 1} == {}


def test_models_that_only_transcribe_are_those_of_vllm(models):
    path, tables = models
    only = set()
    for name, (module, _class) in tables["_MULTIMODAL_MODELS"].items():
        file = path / f"{module}.py"
        if file.exists() and "supports_transcription_only = True" in file.read_text(encoding="utf-8"):
            only.add(name)
    assert only and {name for name in only if model_kind.kind_of(name) != "transcription"} == set()


def test_vllm_has_the_words_of_each_start_that_fails(models):
    package = models[0].parents[1]
    # A sentence may be written over several lines, in quotes.
    texts = [" ".join(path.read_text(encoding="utf-8").replace('"', " ").split()) for path in package.rglob("*.py")]
    issues = load_families()["known_issues"]
    symptoms = {*VLLM, *(issue["symptom"] for issue in issues if issue["symptom"] not in NOT_VLLM)}
    assert {symptom for symptom in symptoms if not any(symptom in text for text in texts)} == set()


def test_the_chat_templates_of_the_role_are_vllm_s(models):
    examples = models[0].parents[2] / "examples"
    for name in CHAT_TEMPLATES:
        assert (ROOT / "roles" / "vllm" / "files" / name).read_bytes() == (examples / name).read_bytes()


def test_the_sources_of_the_families_are_there(models):
    root = models[0].parents[2]
    sources = {entry["source"] for key in ("guards", "known_issues") for entry in load_families()[key]}
    assert {name for name in sources if not name.startswith("https://") and not (root / name).is_file()} == set()
