# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vllm preload` reads of an instance's configuration is all that vLLM's own fingerprint of the weights has."""

from __future__ import annotations

import ast

from ansible_collections.baremetal.inference.plugins.module_utils.instance.preload import KEPT

from tests.parity.conftest import fetched
from tools.vllm.fetch_vllm_release import sources

# The arguments that decide each field. The others are of the files, of the release, or of the process.
ARGUMENTS = {
    "tp_size": ["tensor-parallel-size"], "pp_size": ["pipeline-parallel-size"], "dp_size": ["data-parallel-size"],
    "dtype": ["dtype"], "quantization": ["quantization"], "quant_config_hash": ["quantization-config", "hf-overrides"],
    "rope_parameters_hash": ["hf-overrides", "max-model-len"], "kv_cache_dtype": ["kv-cache-dtype"],
    "kv_cache_dtype_skip_layers": ["kv-cache-dtype-skip-layers"], "revision": ["revision"],
    "is_draft": ["speculative-config"], "enable_expert_parallel": ["enable-expert-parallel"],
    "expert_placement_strategy": ["expert-placement-strategy"], "moe_backend": ["moe-backend", "kernel-config"],
    "linear_backend": ["linear-backend", "kernel-config"], "linear_backend_per_quant": ["kernel-config"],
    "checkpoint": ["model"], "model_arch": ["model", "hf-overrides"],
}  # fmt: skip
NOT_ARGUMENTS = {"tp_rank", "pp_rank", "dp_rank", "vllm_version"}


def test_every_field_of_the_fingerprint_is_decided_by_what_is_kept():
    file = fetched(sources, "0.33.0") / "vllm/model_executor/model_loader/weight_cache/protocol.py"
    (key,) = (node for node in ast.parse(file.read_text()).body if getattr(node, "name", "") == "WeightCacheKey")
    fields = {node.target.id for node in key.body if isinstance(node, ast.AnnAssign)}
    assert fields == {*ARGUMENTS, *NOT_ARGUMENTS}
    assert {name for names in ARGUMENTS.values() for name in names} <= {*KEPT}
