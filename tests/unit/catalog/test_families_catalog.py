# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_families
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import load_pins
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

GUARDS = load_families()["guards"]


def count_of(chips):
    """Return the chips of a host: a tray of a rack has four."""
    return 4 if chips in ("gb200", "gb300") else 8


def planned(directory, weights, chips, args=None, precision="", manifest=None, dense=False, spans=(), **more):
    """Return the plan of an instance of all chips of a host, or of the hosts ``spans``. Raises PlanError.

    The number format is that of the recipe's variant, ``manifest`` what that of the weights has besides their files.
    """
    (directory / "org").mkdir(parents=True, exist_ok=True)
    recipe = {"model": {"model_id": f"org/{weights}", "context_length": 4096}}
    recipe["model"] |= {"architecture": "dense"} if dense else {}
    recipe["model"] |= {"base_env": more.pop("base_env", {})}
    recipe |= {"compatible_strategies": ["multi_node_tp"]} if spans else {}
    recipe["variants"] = {"default": {"precision": precision} if precision else {}}
    (directory / "org" / "model.yaml").write_text(json.dumps(recipe))
    if manifest:
        files = {"model.safetensors": {"size": 1000, "sha256": "0" * 64}}
        pinned = {"repository": f"org/{weights}", "revision": "0" * 40, "files": files, **manifest}
        (directory / "org" / f"{weights}.yml").write_text(json.dumps(pinned))
        more["weights_manifest_path"] = [str(directory)]
    chip, _dash, firmware = chips.partition("-")
    accelerator = declared_accelerator(load_catalogue(), chip, count_of(chip))
    if firmware:
        accelerator = replace(accelerator, mec_firmware=int(firmware))
    env = more.pop("env", {})
    if spans:
        more["members"] = {name: {"address": f"10.0.0.{rank}", "interface": "eth2"} for rank, name in enumerate(spans)}
    size = {} if spans else {"tensor-parallel-size": count_of(chips)}
    instance = {"recipe": "org/model", "args": {**size, **(args or {})}, "env": env}
    instance |= {"nodes": spans} if spans else {}
    settings = {**SITE, "instances": {"chat": instance}, "release": "0.33.0", "recipe_path": [str(directory)], **more}
    return plan_host("host", accelerator, settings)["chat"]


def said(*words, **more):
    """Return the refusal of an instance, else its warnings, as one text."""
    try:
        return " ".join(planned(*words, **more)["warnings"])
    except PlanError as exc:
        return str(exc)


def family_words(text):
    """Return the guards of the catalogue whose sentence a text has: a whole clause."""
    ends = re.compile(r"; | vllm_instances|\Z")
    clauses = [(guard, f": {guard.get('refuse') or guard['warn']}") for guard in GUARDS]
    return [guard for guard, clause in clauses if clause in text and ends.match(text, text.index(clause) + len(clause))]


TP4 = {"tensor-parallel-size": 4}
EXPERTS = {"enable-expert-parallel": True}
MTP = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}
TOKENS = {"speculative-config.num_speculative_tokens": 1}
AITER = {"VLLM_ROCM_USE_AITER": "1"}
DSA = {"block-size": 1, "kv-cache-dtype": "bfloat16"}
OLD = {"release": "0.25.1"}
ASCEND = {"release": "0.30.0"}
FP8_CACHE, FP8_WEIGHTS = {"kv-cache-dtype": "fp8"}, {"quantization": "fp8"}
HALF = {"dtype": "float16"}
FP8, NVFP4, INT4 = {"precision": "fp8"}, {"precision": "nvfp4"}, {"precision": "int4"}
EAGER = {"enforce-eager": True}
GPTQ, PACKED = {"manifest": {"precision": "gptq"}}, {"manifest": {"precision": "compressed_tensors"}}
LATENT = {"model_type": "deepseek_v3", "kv_lora_rank": 512}
SPARSE = {**LATENT, "index_head_dim": 128}
OWN_FP4 = {"VLLM_USE_NVFP4_CT_EMULATIONS": "1"}
# What is refused or warned of, with a part of the sentence.
SAID = [
    ("DeepSeek-V3.2", "a100", {}, {}, "kernels for Hopper and Blackwell only"),
    ("DeepSeek-V4-Flash", "l40s", {}, {}, "kernels for Hopper and Blackwell only"),
    ("GLM-5.2-FP8", "a100", {}, {}, "kernels for Hopper and Blackwell only"),
    ("DeepSeek-V3.2", "mi250x", {}, {}, "DeepSeek-V3.1 or GLM-4.7"),
    ("GLM-5.2", "r9700", {}, {"release": "0.23.0"}, "AITER only, which are for CDNA 3 and 4"),
    ("any", "w7900", {}, {"manifest": {"config": SPARSE}}, "by their config.json these weights have sparse"),
    ("DeepSeek-V3.2", "mi300x", DSA, {"env": {"VLLM_ROCM_USE_AITER": "0"}}, 'AITER to "1" or leave it out'),
    ("GLM-5.2-FP8", "mi308x", {}, {"env": {"VLLM_ROCM_USE_AITER": None}}, 'AITER to "1" or leave it out'),
    ("any", "mi325x", {}, {"manifest": {"config": SPARSE}}, 'set env VLLM_ROCM_USE_AITER "1"'),
    ("DeepSeek-V3.2", "mi355x", {}, {}, "set args block-size to 1 and kv-cache-dtype to bfloat16"),
    ("DeepSeek-V3.2", "mi300x", {"block-size": 1, "kv-cache-dtype": "fp8"}, {}, "set args block-size to 1"),
    ("any", "gb300", {}, {"spans": ["host", "other"]}, "nvidia-imex"),
    ("any", "b300", {}, {"release": "0.11.0"}, "built with CUDA 13, such as 0.33.0"),
    ("any", "gb10", {"gpu-memory-utilization": 0.8}, {"release": "0.17.1"}, "built with CUDA 12"),
    ("DeepSeek-V3.1", "ascend_310p", HALF, ASCEND, "no attention with latents"),
    ("any", "ascend_310p", HALF, {"manifest": {"config": LATENT}, **ASCEND}, "by their config.json these weights have"),
    ("any", "ascend_950dt", {}, {**FP8, "release": "0.23.0"}, "those of compressed-tensors only"),
    ("any", "ascend_950dt", {"quantization": "mxfp8"}, {"release": "0.23.0"}, "with quantization ascend"),
    ("any", "ascend_a3", {"quantization": "gptq"}, ASCEND, "has ascend and compressed-tensors"),
    (
        "Qwen3.5-35B-A3B-GPTQ-Int4",
        "ascend_a3",
        {},
        {**INT4, **ASCEND},
        "by their name these weights are in GPTQ, which",
    ),
    ("Qwen3-32B-AWQ", "ascend_a3", {}, {**INT4, **ASCEND}, "by their name these weights are in AWQ, which"),
    ("gemma-4-12B-it", "ascend_a2", EAGER, {**INT4, **ASCEND, "dense": True}, "4-bit weights of experts only"),
    (
        "gemma-4-31B-it-qat-w4a16-ct",
        "ascend_a3",
        EAGER,
        {**PACKED, **ASCEND, "dense": True},
        "by their name these weights have 4 bits",
    ),
    (
        "gemma-4-31B-it",
        "ascend_a3",
        {},
        ASCEND,
        "set args enforce-eager to true, or try the cudagraph_mode FULL_DECODE_ONLY",
    ),
    ("gemma-4-31B-it", "ascend_a2", {"compilation-config": {"mode": 3}}, ASCEND, "set args enforce-eager to true"),
    ("Llama-4-Scout-17B-16E-Instruct", "ascend_a3", {}, ASCEND, "lists this model as not supported"),
    ("whisper-large-v3", "ascend_950dt", {}, ASCEND, "lists this model as not supported"),
    ("InternVL3-8B", "ascend_a2", {}, ASCEND, "lists this model as not supported"),
    ("Qwen3-235B-A22B", "ascend_310p", HALF, ASCEND, "lists this chip for other models only"),
    ("Llama-3.1-8B-Instruct", "ascend_310p", {}, ASCEND, "lists this chip for other models only"),
    ("any", "ascend_950pr", {}, {"precision": "mxfp4", **ASCEND}, "has ascend and compressed-tensors"),
    ("any", "ascend_310p", HALF, {**PACKED, **ASCEND}, "W8A8 of ModelSlim only"),
    ("any", "mi300x", {"quantization": "experts_int8"}, {}, "on AMD's chips; take it away"),
    ("any", "mi300x", {}, {"manifest": {"precision": "fp_quant"}}, "on AMD's chips; take it away"),
    ("any", "mi300x", {"quantization": "gptq_marlin"}, {}, "on NVIDIA's chips only from 0.25 on"),
    ("any", "arc_pro_b60", {"quantization": "torchao"}, {}, "on Intel's chips"),
    ("any", "mi300x", {}, NVFP4, "emulates NVFP4 on AMD's chips"),
    ("any", "mi355x", {}, {"manifest": NVFP4, "release": "0.23.0"}, "which is slow"),
    ("any", "mi355x", {}, {**NVFP4, "release": "0.17.1"}, "does not emulate NVFP4"),
    ("any", "h200", {}, NVFP4, "less memory, and no less time"),
    ("any", "mi250x", {}, FP8, "in FP8 blocks only"),
    ("any", "w7900", {}, {"manifest": FP8}, "in FP8 blocks only"),
    ("MiniMax-M2.5", "h200", {}, OLD, "tensor-parallel-size 4"),
    ("Qwen3-235B-A22B-FP8", "h200", {}, OLD, "tensor-parallel-size 4"),
    ("Qwen3-30B-A3B-Instruct-2507-FP8", "h200", TP4, OLD, "tensor-parallel-size 2"),
    ("Step-3.5-Flash-FP8", "h200", TP4, {}, "; set args tensor-parallel-size 2"),
    ("Qwen3.8-Flash-Next", "h200", {}, {}, "; set args tensor-parallel-size 4"),
    ("MiMo-V2.5", "h200", EXPERTS, {}, "also with expert parallelism"),
    ("Qwen3-Next-80B-A3B", "h200", {"no-enable-chunked-prefill": True}, {}, "only with chunked prefill"),
    ("any", "h200", {"moe-backend": "flashinfer_trtllm"}, {}, "moe-backend: null"),
    ("any", "rtx_5090", {"moe-backend": "flashinfer_trtllm"}, {}, "compute capability 10"),
    ("any", "gb10", {"moe-backend": "flashinfer_trtllm"}, {}, "compute capability 10"),
    ("any", "gb10", {}, {}, "takes 0.9 or more; set args gpu-memory-utilization to 0.85"),
    ("any", "ascend_310p", {"dtype": "bfloat16"}, {"release": "0.30.0"}, "in float16 only"),
    ("any", "ascend_310p", {"dtype": None}, {"release": "0.30.0"}, "in float16 only"),
    ("any", "ascend_a3", FP8_CACHE, ASCEND, "kv-cache-dtype away with null"),
    ("any", "ascend_a2", {"kv-cache-dtype": "fp8_e5m2"}, {"release": "0.20.2"}, "crashes with such a KV cache"),
    ("any", "ascend_310p", {**FP8_CACHE, "dtype": "float16"}, ASCEND, "crashes with such a KV cache"),
    ("DeepSeek-V4-Flash", "ascend_a3", FP8_CACHE, ASCEND, "kv-cache-dtype has no effect"),
    ("MiniMax-M3", "ascend_a3", FP8_CACHE, ASCEND, "if vLLM does not start"),
    ("any", "ascend_a3", FP8_WEIGHTS, ASCEND, "FP8 on the 950 only"),
    ("DeepSeek-V4-Flash", "ascend_a2", FP8_WEIGHTS, ASCEND, "FP8 on the 950 only"),
    ("MiniMax-M2.5", "ascend_a3", FP8_WEIGHTS, ASCEND, "twice the memory of their files"),
    ("any", "ascend_950dt", FP8_WEIGHTS, {"release": "0.23.0"}, "DeepSeek-V4's only"),
    ("any", "ascend_a2", {"quantization": "awq"}, {"release": "0.23.0"}, "has ascend and compressed-tensors"),
    ("any", "a100", {**FP8_CACHE, "attention-backend": "TRITON_ATTN"}, {}, "take it away with null"),
    ("any", "a100", {**FP8_CACHE, "attention-backend": "triton_attn"}, {}, "take it away with null"),
    ("any", "a100", {**FP8_CACHE, "attention-config": {"backend": "TRITON_ATTN"}}, {}, "take it away with null"),
    ("any", "t4", {**FP8_CACHE, "attention-backend": "auto"}, {}, "no attention with such a KV cache"),
    ("any", "h200", {"moe-backend": "FLASHINFER-TRTLLM"}, {}, "moe-backend: null"),
    ("any", "h200", {"kernel-config": {"moe_backend": "flashinfer_trtllm"}}, {}, "moe-backend: null"),
    ("gpt-oss-120b", "a100", FP8_CACHE, {}, "only Triton's attention serves this model"),
    ("any", "t4", FP8_CACHE, {}, "no attention with such a KV cache"),
    ("DeepSeek-V3.1", "a100", FP8_CACHE, {}, "no such KV cache on Ampere"),
    ("any", "mi250x", FP8_WEIGHTS, {}, "does not compute in FP8"),
    ("any", "t4", {"dtype": "bfloat16"}, {}, "has no bfloat16"),
    ("DeepSeek-V4-Flash-0731", "h200", MTP, {}, "dspark"),
    ("DeepSeek-V4-Flash-0731", "h200", {"speculative-config.method": "deepseek_mtp", **TOKENS}, {}, "dspark"),
    ("DeepSeek-V4-Flash-0731", "h200", {"spec-method": "mtp", "spec-tokens": 1}, {}, "dspark"),
    ("GLM-5.3-Flash", "h200", {"kv-cache-dtype": "fp8"}, {}, "with null if it does not start"),
    ("GLM-5.1-MXFP4", "mi355x", MTP, {}, "spec_decoding"),
    ("gemma-3-27b-it", "h200", {"dtype": "half"}, {}, "dtype to bfloat16"),
    ("GLM-4-32B-0414", "h200", {"dtype": "float16"}, {}, "dtype to bfloat16"),
    ("MiniMax-M3", "h200", {"block-size": 64}, {}, "set block-size 128"),
    ("MiniMax-M3", "h200", {"tool-call-parser": "minimax_m2"}, {}, "tool-call-parser to minimax_m3"),
    ("MiniMax-M3", "h200", {"reasoning-parser": "minimax_m2"}, {}, "reasoning-parser to minimax_m3"),
    ("Kimi-K2.6", "mi355x", {"moe-backend": "flydsl", **EXPERTS}, {}, "has no expert parallelism"),
    ("Kimi-K2.5-MXFP4", "mi355x-170", {}, {}, "HSA_NO_SCRATCH_RECLAIM"),
    ("Qwen3.8-Flash-Next", "h200", {**TP4, "pipeline-parallel-size": 2}, {}, "pipeline-parallel-size to 1"),
    ("Qwen2.5-VL-7B-Instruct", "h200", {"kv-cache-dtype": "fp8_e5m2"}, {}, "set fp8"),
    ("diffusiongemma-26B-A4B-it", "h200", {"max-num-seqs": 16}, {}, "max-num-seqs to 4"),
    ("diffusiongemma-26B-A4B-it", "h200", {"attention-backend": "FLASHINFER"}, {}, "TRITON_ATTN"),
    ("Mistral-Large-3-675B-Instruct-2512-NVFP4", "b200", {}, {}, "max-model-len to 65536"),
    ("Voxtral-Mini-4B-Realtime-2602", "h200", {}, {}, "tokenizer-mode to mistral"),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h200", {"kv-cache-dtype": "fp8"}, {}, "take their variant"),
    ("Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4", "b200", {}, {}, "flashinfer_cutlass"),
    ("Laguna-S-2.1-FP8", "mi325x", {}, {"env": AITER}, "VLLM_ROCM_USE_AITER_MOE"),
]
# The way out of each, and the same on other hardware or with other weights.
QUIET = [
    *(
        (name, "ascend_310p", {}, ASCEND)
        for name in ("Qwen3-8B", "Qwen3-30B-A3B", "Qwen3-VL-8B-Instruct", "Qwen3.5-9B")
    ),
    *(
        (name, "ascend_310p", {}, ASCEND)
        for name in ("Qwen3.6-35B-A3B-w8a8", "PaddleOCR-VL", "Qwen3-ASR-1.7B", "bge-m3")
    ),
    ("Kimi-K2-Thinking", "ascend_a3", {}, {**INT4, **ASCEND}),
    ("Qwen3.5-35B-A3B-GPTQ-Int4", "ascend_a3", {}, {**PACKED, **ASCEND}),
    ("any", "ascend_a3", {}, {**PACKED, **ASCEND, "dense": True}),
    ("any", "h200", {}, {**INT4, "dense": True}),
    ("gemma-4-31B-it", "ascend_a3", EAGER, ASCEND),
    ("gemma-4-31B-it", "ascend_a3", {"compilation-config.cudagraph_mode": "FULL_DECODE_ONLY"}, ASCEND),
    ("gemma-4-31B-it", "ascend_950dt", {}, ASCEND),
    ("InternVL3_5-8B", "ascend_a3", {}, ASCEND),
    ("Llama-3.3-70B-Instruct", "ascend_a3", {}, ASCEND),
    ("Llama-4-Scout-17B-16E-Instruct", "h200", {}, {}),
    ("any", "gb10", {"gpu-memory-utilization": 0.85}, {}),
    ("any", "gb10", {"kv-cache-memory-bytes": "60G"}, {}),
    ("DeepSeek-V3.2", "mi300x", DSA, {"manifest": {"config": SPARSE}}),
    ("any", "b300", {}, {"spans": ["host", "other"]}),
    ("DeepSeek-V3.2", "mi355x", DSA, {"env": {"VLLM_ROCM_USE_AITER": "0"}}),
    ("any", "mi325x", {}, {"manifest": {"config": SPARSE}, "env": AITER}),
    ("any", "mi325x", {}, {"manifest": {"config": {**SPARSE, "compress_ratios": [4]}}}),
    ("GLM-5.2-FP8", "mi300x", {}, {}),
    ("DeepSeek-V3.1", "mi250x", {}, {"manifest": {"config": LATENT, **FP8}}),
    ("Qwen3-235B-A22B-FP8", "mi250x", {}, FP8),
    ("any", "b200", {}, {"release": "0.11.0", **NVFP4}),
    ("any", "b300", {}, {"release": "0.20.2"}),
    ("qwen3-8b", "ascend_310p", HALF, {"manifest": {"config": {**LATENT, "model_type": "minicpm3"}}, **ASCEND}),
    ("any", "ascend_950dt", {"quantization": "ascend"}, {"precision": "mxfp4", **ASCEND}),
    ("any", "ascend_950dt", {"quantization": "compressed-tensors"}, {**FP8, "release": "0.23.0"}),
    ("any", "ascend_a3", {}, {**PACKED, **ASCEND}),
    ("Qwen3-Next-AWQ-4bit", "ascend_a3", {}, {**PACKED, **ASCEND}),
    ("any", "mi300x", {"quantization": "compressed-tensors"}, FP8),
    ("any", "mi300x", {}, GPTQ),
    ("any", "arc_pro_b60", {}, GPTQ),
    ("any", "mi355x", {}, {**NVFP4, "release": "0.17.1", "env": OWN_FP4}),
    ("any", "t4", {}, {}),
    ("any", "t4", {**FP8_CACHE, "attention-backend": "FLASHINFER"}, {}),
    ("any", "t4", {**FP8_CACHE, "attention-config.backend": "FLASHINFER"}, {}),
    ("any", "t4", {**FP8_CACHE, "attention-config": {"backend": "flashinfer"}}, {}),
    ("any", "t4", {**FP8_CACHE, "attention-config": {"backend_per_kind": {"decoder": "FLASHINFER"}}}, {}),
    ("any", "ascend_950dt", {**FP8_CACHE, **FP8_WEIGHTS}, ASCEND),
    ("DeepSeek-V4-Flash", "ascend_950dt", FP8_WEIGHTS, {"release": "0.23.0"}),
    ("any", "ascend_a3", {"kv-cache-dtype": "int8", "quantization": "ascend"}, ASCEND),
    ("any", "a100", {**FP8_CACHE, **FP8_WEIGHTS}, {}),
    ("any", "a100", {"kv-cache-dtype": "fp8_e5m2", "attention-backend": "TRITON_ATTN"}, OLD),
    ("DeepSeek-R1-Distill-Llama-70B", "a100", FP8_CACHE, {}),
    ("DeepSeek-V3.1", "h200", FP8_CACHE, {}),
    ("any", "mi300x", {**FP8_CACHE, **FP8_WEIGHTS}, {}),
    ("any", "mi250x", FP8_CACHE, {}),
    ("any", "l40s", FP8_CACHE, {}),
    ("DeepSeek-V3.2", "h200", {}, {}),
    ("DeepSeek-V3.1", "a100", {}, {}),
    ("MiniMax-M2.5", "h200", {}, {}),
    ("MiniMax-M2.5", "h200", EXPERTS, OLD),
    ("MiniMax-M2.5", "h200", TP4, OLD),
    ("MiniMax-M2-NVFP4", "b200", {}, OLD),
    ("Qwen3-30B-A3B-FP8", "h200", {"tensor-parallel-size": 2}, OLD),
    ("Step-3.5-Flash", "h200", {}, {}),
    ("Qwen3.8-Flash-Next", "h200", EXPERTS, {}),
    ("Qwen3.8-Flash-Next", "b200", {"moe-backend": "flashinfer_trtllm"}, {}),
    ("MiMo-V2.5", "h200", TP4, {}),
    ("MiMo-V2.5-Pro", "h200", {}, {}),
    ("DeepSeek-V4-Flash", "h200", MTP, {}),
    ("DeepSeek-V4-Flash-0731", "h200", {"speculative-config": {"method": "dspark"}}, {}),
    ("GLM-5.3-Flash", "b200", {"kv-cache-dtype": "fp8"}, {}),
    ("gemma-4-31B-it", "h200", {"dtype": "half"}, {}),
    ("gemma-3-27b-it", "h200", {"dtype": "bfloat16"}, {}),
    ("MiniMax-M3", "h200", {"block-size": 128, "tool-call-parser": "minimax_m3"}, {}),
    ("MiniMax-M2", "h200", {"tool-call-parser": "minimax_m2"}, {}),
    ("Kimi-K2.6", "mi355x", {"moe-backend": "flydsl"}, {}),
    ("Kimi-K2.5-MXFP4", "mi355x-177", {}, {}),
    ("Kimi-K2.5-MXFP4", "mi355x", {}, {}),
    ("Kimi-K2.5-MXFP4", "mi355x-170", {}, {"env": {"HSA_NO_SCRATCH_RECLAIM": "1"}}),
    ("Qwen3-VL-8B-Instruct", "h200", {"kv-cache-dtype": "fp8_e5m2"}, {}),
    ("diffusiongemma-26B-A4B-it", "h200", {"max-num-seqs": 4}, {}),
    ("Mistral-Large-3-675B-Instruct-2512-NVFP4", "b200", {"max-model-len": 32768}, {}),
    ("Voxtral-Mini-4B-Realtime-2602", "h200", {"tokenizer-mode": "mistral"}, {}),
    ("Laguna-S-2.1-FP8", "mi325x", {}, {"env": {**AITER, "VLLM_ROCM_USE_AITER_MOE": "0"}}),
    ("Laguna-S-2.1-FP8", "mi300x", {}, {"env": AITER}),
]


@pytest.mark.parametrize(("weights", "chips", "args", "more", "part"), SAID)
def test_what_does_not_work_is_said_with_a_way_out(tmp_path, weights, chips, args, more, part):
    text = said(tmp_path, weights, chips, args, **more)
    found = family_words(text)
    assert len(found) == 1, text
    assert part in text


@pytest.mark.parametrize(("weights", "chips", "args", "more"), QUIET)
def test_what_works_is_left_alone(tmp_path, weights, chips, args, more):
    text = said(tmp_path, weights, chips, args, **more)
    assert family_words(text) == []
    # Nothing else hides the guard.
    assert "does not fit" not in text
    assert "manifest" in more or "unknown" not in text


def test_every_guard_has_a_case(tmp_path):
    met = []
    for number, (weights, chips, args, more, _part) in enumerate(SAID):
        # A recipe is read once.
        met += family_words(said(tmp_path / str(number), weights, chips, args, **more))
    assert [guard for guard in GUARDS if guard not in met] == []


@pytest.mark.parametrize("chips", ["mi300a", "mi300x", "mi308x", "mi325x", "mi355x"])
@pytest.mark.parametrize("weights", ["DeepSeek-V3.2", "GLM-5-FP8"])
def test_sparse_attention_gets_the_variable_without_which_it_does_not_start(tmp_path, weights, chips):
    plan = planned(tmp_path, weights, chips)
    assert plan["env"]["VLLM_ROCM_USE_AITER"] == "1"
    row = next(row for row in plan["explain"] if row["key"] == "env.VLLM_ROCM_USE_AITER")
    assert (row["layer"], "needs AITER" in row["because"]) == ("release_fixes", True)


@pytest.mark.parametrize("chips", ["gb200", "gb300"])
def test_trays_of_a_rack_use_no_nvlink_between_them_unless_the_site_sets_it(tmp_path, chips):
    plan = planned(tmp_path / "a", "any", chips, spans=["host", "other"])
    assert plan["env"]["NCCL_MNNVL_ENABLE"] == "0"
    (warning,) = [text for text in plan["warnings"] if "nvidia-imex" in text]
    assert "set env NCCL_MNNVL_ENABLE" in warning
    own = planned(tmp_path / "b", "any", chips, spans=["host", "other"], env={"NCCL_MNNVL_ENABLE": "2"})
    assert own["env"]["NCCL_MNNVL_ENABLE"] == "2" and "nvidia-imex" not in str(own["warnings"])
    alone = planned(tmp_path / "c", "any", chips)
    assert "NCCL_MNNVL_ENABLE" not in alone["env"] and "nvidia-imex" not in str(alone["warnings"])


@pytest.mark.parametrize(("chips", "value"), [("gb200", None), ("gb300", None), ("b200", "1")])
def test_one_tray_does_not_ask_for_nvlink_between_trays(tmp_path, chips, value):
    # NCCL checks it where (src/init.cc): nNodes > 1 && ncclParamMNNVLEnable() != 0 || ncclParamMNNVLEnable() == 1
    more = {"base_env": {"NCCL_MNNVL_ENABLE": "1"}}
    plan = planned(tmp_path / "a", "any", chips, **more)
    assert plan["env"].get("NCCL_MNNVL_ENABLE") == value
    own = planned(tmp_path / "b", "any", chips, env={"NCCL_MNNVL_ENABLE": "1"}, **more)
    assert own["env"]["NCCL_MNNVL_ENABLE"] == "1"


def test_models_without_it_do_not_get_it(tmp_path):
    assert "VLLM_ROCM_USE_AITER" not in planned(tmp_path, "DeepSeek-V3.1", "mi300x")["env"]
    assert "VLLM_ROCM_USE_AITER" not in planned(tmp_path / "h200", "DeepSeek-V3.2", "h200")["env"]


def test_a_recipe_of_a_source_is_one_of_the_newest_pins():
    pinned = load_pins("0.33.0").files
    sources = [entry["source"] for key, entries in load_families().items() for entry in entries if key != "packages"]
    assert sources and {name for name in sources if name.startswith("recipes/") and name not in pinned} == set()
    assert {
        name
        for name in sources
        if not name.startswith(
            ("recipes/", "vllm/", "https://github.com/vllm-project/", "https://github.com/NVIDIA/nccl/")
        )
    } == set()


def test_a_failed_start_gets_the_advice_of_the_family(tmp_path):
    said(tmp_path, "MiniMax-M3", "h200")
    settings = {
        **SITE,
        "instances": {"chat": {"recipe": "org/model"}},
        "release": "0.33.0",
        "recipe_path": [str(tmp_path)],
    }
    plan = plan_host("host", declared_accelerator(load_catalogue(), "mi355x", 8), settings)["chat"]
    assert "block-size to 128" in next(
        each["advice"] for each in plan["known_issues"] if each["symptom"] == "No common block size"
    )
