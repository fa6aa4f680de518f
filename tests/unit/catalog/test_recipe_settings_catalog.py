# SPDX-License-Identifier: GPL-3.0-or-later
"""What recipes may set by themselves: names that exist, and no value that names a path, an address or a repository."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_foreign,
    load_restrictions,
    load_table,
    releases,
)

LIST = load_restrictions()
ALLOWED = LIST.allowed
TABLES = [load_table(version) for version in releases()]
FLAGS = {name: table.flags[name] for table in TABLES for name in table.flags}
# The instance's own counts, whatever the recipe says.
WITHOUT_EFFECT = {"host", "port", "model", "served-model-name"}
# Recipes of vLLM set these, and no table has them: libraries below vLLM, and names that vLLM has dropped.
UPSTREAM_ALONE = {
    "B12X_MLA_SM120_UNIFIED", "B12X_MOE_FORCE_A8", "CUTE_DSL_ARCH", "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED",
    "MC_ENABLE_DEST_DEVICE_AFFINITY", "MC_MAX_MR_SIZE", "MC_SLICE_SIZE",
    "MC_STORE_MEMCPY", "MC_WORKERS_PER_CTX", "MN_IF_NAME", "OMPI_MCA_btl_tcp_if_include", "PYTHONNOUSERSITE",
    "VLLM_CONNECTOR_PREFETCH_DEPTH", "VLLM_CONNECTOR_PREFETCH_KV_CAP", "VLLM_ENABLE_K3_LATENT_MOE_TAIL_FUSION",
    "VLLM_MEMORY_PROFILE_INCLUDE_ATTN", "VLLM_ROCM_MINIMAX_M3_MONO", "VLLM_ROCM_MINIMAX_M3_SP_PREFILL",
    "VLLM_USE_B12X_FP8_GEMM", "VLLM_USE_B12X_MHC", "VLLM_USE_B12X_MOE", "VLLM_USE_B12X_SPARSE_INDEXER",
    "VLLM_USE_B12X_WO_PROJECTION",
}  # fmt: skip
# Free texts and what bounds them: an expression of their own, or names of layers.
TEXTS = {
    "chat-template", "config-format", "cpu-offload-params", "data-parallel-backend", "distributed-executor-backend",
    "generation-config", "hf-config-path", "kv-cache-dtype-skip-layers", "logits-processors", "lora-target-modules",
    "mamba-backend", "model-impl", "offload-params", "optimization-level", "override-attention-dtype",
    "reasoning-parser", "revision", "spec-model", "tokenizer", "tokenizer-mode", "tokenizer-revision",
    "tool-call-parser", "all2all-backend", "spec-method",
}  # fmt: skip
HOSTILE = [
    "/etc/passwd", "../x", "examples/../../etc/passwd", "..", "~/x", "https://example.org/x", "s3://bucket/key", "file:///x",
    "\\\\host\\share", "a/b/c", "./x", "a\n/b", "--middleware=evil.Code", "-h", "-O3", "org/..",
]  # fmt: skip


def names(kind):
    return [each.name.pattern for each in getattr(ALLOWED, kind)]


def test_every_argument_is_one_of_a_release():
    assert set(names("arguments")) <= set(FLAGS)


def test_every_variable_is_one_of_a_release_or_of_a_library_or_of_upstream_s_recipes():
    foreign = load_foreign(None)
    unknown = {
        name
        for name in names("variables")
        if not any(name in table.env or foreign.covers(name, table.version) for table in TABLES)
    }
    assert unknown == UPSTREAM_ALONE


@pytest.mark.parametrize("kind", ["variables", "arguments", "keys"])
def test_no_name_is_listed_twice(kind):
    assert sorted(names(kind)) == sorted(set(names(kind)))


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_of_an_argument_or_variable_leaves_vllm_s_own(value):
    passed = [
        name for name in names("arguments") if name not in WITHOUT_EFFECT and not list(LIST.of_args({name: value}))
    ]
    passed += [name for name in names("variables") if not list(LIST.of_env({name: value}))]
    assert passed == []


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_of_a_key_does_at_any_depth(value):
    marks = ("reasoning_start_str", "reasoning_end_str")
    plain = [name for name in names("keys") if name.isidentifier() and name not in marks]
    for inside in (lambda key: {key: value}, lambda key: {"pass_config": {"connectors": [{key: [value]}]}}):
        assert [name for name in plain if not list(LIST.of_args({"compilation-config": inside(name)}))] == []


def test_every_free_text_of_a_release_has_been_reviewed():
    free = {
        name
        for name in {*names("arguments")} - WITHOUT_EFFECT
        if FLAGS[name].get("of", FLAGS[name]["kind"]) == "text" and not FLAGS[name].get("closed")
    }
    assert free <= TEXTS


def test_json_as_one_text_is_no_way_around_its_keys():
    sets = [name for name in names("arguments") if FLAGS[name]["kind"] == "json"]
    assert len(sets) > 15
    for value in ("evil.Code", ["evil.Code"], '{"some_unknown_key": 1}', [{"some_unknown_key": 1}]):
        assert [name for name in sets if not list(LIST.of_args({name: value}))] == []


def test_repositories_and_placeholders_of_upstream_s_recipes_pass():
    ordinary = {
        "tokenizer": "RecursiveSI/flint", "hf-config-path": "RecursiveSI/flint", "generation-config": "vllm",
        "chat-template": "examples/tool_chat_template_gemma4.jinja", "cudagraph-capture-sizes": ["1", "2"],
        "speculative-config": {"model": "org/draft-1.5", "method": "eagle3", "num_speculative_tokens": 3},
        "hf-overrides": '{"text_config": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}}',
        "kv-transfer-config": {"kv_connector": "MultiConnector", "kv_connector_extra_config": {
            "connectors": [{"kv_connector": "NixlConnector", "kv_role": "kv_both"}]}},
        "quantization-config": {"targets": {"*in_proj_qkvgfab": "fp8_per_channel"}},
        "reasoning-config": {"reasoning_end_str": "</think>"}, "served-model-name": ["org/name"],
    }  # fmt: skip
    assert list(LIST.of_args(ordinary)) == []
