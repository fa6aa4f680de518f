# SPDX-License-Identifier: GPL-3.0-or-later
"""What the directory of preloaded weights is named after is all that vLLM's own fingerprint of them has, and more."""

from __future__ import annotations

import ast

from ansible_collections.baremetal.inference.plugins.module_utils.instance.preload import KEPT, drafts_in

from tests.parity.conftest import fetched
from tools.vllm.fetch_vllm_release import sources

# The arguments that decide each field. The others are of the files, of the release, or of the process.
ARGUMENTS = {
    "tp_size": ["tensor-parallel-size"], "pp_size": ["pipeline-parallel-size"], "dp_size": ["data-parallel-size"],
    "dtype": ["dtype"], "quantization": ["quantization"], "quant_config_hash": ["quantization-config", "hf-overrides"],
    "rope_parameters_hash": ["hf-overrides", "max-model-len"], "kv_cache_dtype": ["kv-cache-dtype"],
    "kv_cache_dtype_skip_layers": ["kv-cache-dtype-skip-layers"], "revision": ["revision"],
    "is_draft": ["speculative-config", "spec-method", "spec-model", "spec-tokens"],
    "enable_expert_parallel": ["enable-expert-parallel"],
    "expert_placement_strategy": ["expert-placement-strategy"], "moe_backend": ["moe-backend", "kernel-config"],
    "linear_backend": ["linear-backend", "kernel-config"], "linear_backend_per_quant": ["kernel-config"],
    "checkpoint": ["model"], "model_arch": ["model", "hf-overrides", "hf-config-path"],
}  # fmt: skip
# The version is in the path of the virtual environment, which the directory is named after too.
NOT_ARGUMENTS = {"tp_rank", "pp_rank", "dp_rank", "vllm_version"}
CACHE = "vllm/model_executor/model_loader/weight_cache"


def value_of(file, name):
    """Return the value of a constant in a file of Python."""
    (found,) = (
        node.value for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name
    )  # fmt: skip
    return found


def test_every_field_of_the_fingerprint_is_decided_by_what_is_kept():
    file = fetched(sources, "0.33.0") / CACHE / "protocol.py"
    (key,) = (node for node in ast.parse(file.read_text()).body if getattr(node, "name", "") == "WeightCacheKey")
    fields = {node.target.id for node in key.body if isinstance(node, ast.AnnAssign)}
    assert fields == {*ARGUMENTS, *NOT_ARGUMENTS}
    assert {name for names in ARGUMENTS.values() for name in names} <= {*KEPT}


def test_vllm_knows_every_argument_that_is_kept():
    text = (fetched(sources, "0.33.0") / "vllm/engine/arg_utils.py").read_text()
    assert [name for name in KEPT if f'"--{name}"' not in text] == []


def test_every_method_whose_draft_vllm_holds_is_known():
    """vLLM's key has the headers of a draft alone, so that the directory has to have its bytes; its sockets count."""
    top = fetched(sources, "0.33.0")
    (held,) = value_of(top / CACHE / "utils.py", "WEIGHT_CACHE_DRAFT_METHODS").args
    mtp = value_of(top / "vllm/config/speculative.py", "MTPModelTypes").slice
    methods = {*ast.literal_eval(held), *ast.literal_eval(mtp)}
    assert {"eagle", "eagle3", "mtp"} < methods
    assert [name for name in methods if not drafts_in(f"spec-method: {name}\n")] == []
    assert not any(
        drafts_in(f"spec-method: {name}\n") for name in ("draft_model", "ngram", "dflash", "dspark", "suffix")
    )
