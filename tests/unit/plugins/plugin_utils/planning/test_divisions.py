# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.divisions import (
    Division,
    Parallelism,
    check_sizes,
    size_doubts,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

GPT_OSS = {
    "model_type": "gpt_oss", "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 36,
    "intermediate_size": 2880, "num_local_experts": 128, "vocab_size": 201088,
}  # fmt: skip
LLAMA = {"num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80, "intermediate_size": 28672}
# num_attention_heads alone divides by 5 and 7 here.
ODD = {"num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 32000}
MLA = {"num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "n_routed_experts": 256}
MLA |= {"moe_intermediate_size": 2048, "intermediate_size": 18432, "num_hidden_layers": 61}
HYBRID = {"num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_key_heads": 16, "linear_num_value_heads": 32}
MAMBA = {"num_attention_heads": 32, "num_key_value_heads": 2, "mamba_num_heads": 64, "n_groups": 8}
SIZES = range(1, 17)


def possible(config, **sizes):
    return [size for size in SIZES if Division(config).possible(size, Parallelism(tensor=size, **sizes))]


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (GPT_OSS, [1, 2, 4, 8, 16]),
        (LLAMA, [1, 2, 4, 8, 16]),
        (ODD, [1, 2, 4, 8]),
        (MLA, [1, 2, 4, 8, 16]),
        (HYBRID, [1, 2, 4, 8, 16]),
        # Its groups are 8.
        (MAMBA, [1, 2, 4, 8]),
        # Nobody knows: powers of two.
        ({}, [1, 2, 4, 8, 16]),
    ],
)
def test_tensor_sizes_of_a_model(config, sizes):
    assert possible(config) == sizes


@pytest.mark.parametrize(
    ("config", "sizes", "problem"),
    [
        (GPT_OSS, Parallelism(6), "the model's 64 attention heads cannot be divided among 6 chips"),
        (ODD, Parallelism(5), "the model's 8 key-value heads can neither be divided among nor repeated on 5 chips"),
        # 63 heads, and 32000 entries of a vocabulary, which is not padded further.
        ({"num_attention_heads": 63, "vocab_size": 32000}, Parallelism(7), "32000 entries of the padded vocabulary"),
        ({"num_attention_heads": 64, "intermediate_size": 100}, Parallelism(8), "(intermediate_size)"),
        (GPT_OSS, Parallelism(8, data=8, experts=False), None),
        (GPT_OSS, Parallelism(data=7), "the width of the model's experts (2880) cannot be divided among 7 chips"),
        (GPT_OSS, Parallelism(data=7, experts=True), "(2880) cannot be divided among 7 chips"),
        (GPT_OSS, Parallelism(pipeline=37), "among 37 chips"),
        (LLAMA, Parallelism(pipeline=81), "the model has 80 layers, fewer than the 81 stages of the pipeline"),
        (LLAMA, Parallelism(pipeline=7), None),
        (LLAMA, Parallelism(data=3), None),
        (MLA, Parallelism(data=7, experts=True), None),
        (MLA, Parallelism(data=3), "the width of the model's experts (2048) cannot be divided among 3 chips"),
        ({**MLA, "n_routed_experts": 4}, Parallelism(8, experts=True), "has 4 experts, fewer than the 8 chips"),
        ({**MLA, "n_routed_experts": 8}, Parallelism(8, experts=True), None),
        # Without expert parallelism each chip has a part of every expert.
        ({**MLA, "n_routed_experts": 4}, Parallelism(8), None),
        ({}, Parallelism(6), None),
    ],
)
def test_sizes_that_vllm_refuses(config, sizes, problem):
    found = Division(config).problem(sizes)
    assert found is None if problem is None else problem in found


def test_experts_are_spread_evenly_where_the_planner_chooses():
    sizes = [size for size in SIZES if Division(MLA).possible(size, Parallelism(data=size, experts=True))]
    assert sizes == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            {"tensor-parallel-size": 6},
            "chat: vLLM cannot start with tensor-parallel-size 6: the model's 64 attention heads cannot be divided "
            "among 6 chips; possible tensor-parallel-size: 1, 2, 4, 8",
        ),
        (
            {"pipeline-parallel-size": 40},
            "chat: vLLM cannot start with tensor-parallel-size 1, pipeline-parallel-size 40: the model has 36 layers, "
            "fewer than the 40 stages of the pipeline",
        ),
        (
            {"tensor-parallel-size": "2", "data-parallel-size": 100, "enable-expert-parallel": True},
            "chat: vLLM cannot start with tensor-parallel-size 2, data-parallel-size 100 and enable-expert-parallel: "
            "the model has 128 experts, fewer than the 200 chips that share them; "
            "possible tensor-parallel-size: 1",
        ),
        (
            {"data-parallel-size": 2, "data-parallel-size-local": 4},
            "chat: data-parallel-size-local is 4, expected at most data-parallel-size, which is 2",
        ),
        (
            {"tensor-parallel-size": 8, "decode-context-parallel-size": 3},
            "chat: decode-context-parallel-size is 3, expected a divisor of tensor-parallel-size, which is 8",
        ),
    ],
)
def test_a_refusal_names_sizes_and_reason(args, message):
    config = {**GPT_OSS, "intermediate_size": 2880 * 7} if "pipeline-parallel-size" not in args else GPT_OSS
    config = {**config, "model_type": "other"}
    with pytest.raises(PlanError) as caught:
        check_sizes(args, config, "chat")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("config", "args", "expected"),
    [
        (
            HYBRID,
            {"tensor-parallel-size": 4, "decode-context-parallel-size": 4},
            "expected at most 2 for the model's 2",
        ),
        (LLAMA, {"tensor-parallel-size": 2, "decode-context-parallel-size": 2}, "expected 1 for the model's 8"),
        (LLAMA, {"tensor-parallel-size": 8, "decode-context-parallel-size": 2}, "expected 1 for the model's 8"),
        (ODD, {"tensor-parallel-size": 16, "decode-context-parallel-size": 2}, "cannot be divided among 16 chips"),
        (LLAMA, {"enable-expert-parallel": True}, "the model has no experts, so expert parallelism is impossible"),
    ],
)
def test_sizes_that_do_not_suit_heads_or_experts_are_refused(config, args, expected):
    with pytest.raises(PlanError, match=expected):
        check_sizes(args, config, "chat")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({**MAMBA, "n_groups": 3}, "the model's 3 Mamba groups cannot be divided among 2 chips"),
        ({**MAMBA, "n_groups": 1}, None),
        ({**LLAMA, "num_key_value_heads": 3}, "the model's 3 key-value heads"),
        ({**LLAMA, "num_key_value_heads": 3, "kv_lora_rank": 512}, None),
    ],
)
def test_one_group_of_mamba_and_latent_attention_divide_by_any_size(config, problem):
    found = Division(config).problem(Parallelism(2))
    assert found is None if problem is None else problem in found


def test_as_many_engines_on_a_host_as_there_are_in_all_pass_and_one_more_does_not():
    check_sizes({"data-parallel-size": 2, "data-parallel-size-local": 2}, {}, "chat")
    with pytest.raises(PlanError, match="data-parallel-size-local is 3, expected at most data-parallel-size"):
        check_sizes({"data-parallel-size": 2, "data-parallel-size-local": 3}, {}, "chat")


def test_possible_sizes_pass():
    check_sizes({"tensor-parallel-size": 16, "decode-context-parallel-size": 2}, GPT_OSS, "chat")
    check_sizes({"tensor-parallel-size": 8, "decode-context-parallel-size": 8}, MLA, "chat")
    check_sizes({"tensor-parallel-size": 6, "data-parallel-size": "text"}, {}, "chat")
    # With a parallel context of prefill, that of decoding need not divide the tensor size.
    sizes = {"tensor-parallel-size": 4, "prefill-context-parallel-size": 2, "decode-context-parallel-size": 8}
    check_sizes(sizes, MLA, "chat")


@pytest.mark.parametrize(
    ("heads", "known"), [(1, True), (64, True), (0, False), (-8, False), (True, False), ("64", False)]
)
def test_heads_of_a_manifest_count_where_they_are_a_number(heads, known):
    assert Division({"num_attention_heads": heads}).known is known


def test_a_size_that_nobody_can_judge_is_a_warning():
    assert size_doubts({"tensor-parallel-size": 6}, {}, "chat") == [
        "chat: tensor-parallel-size is 6, and no manifest has the model's attention heads; vLLM starts only if their "
        "number can be divided by it"
    ]
    assert size_doubts({"tensor-parallel-size": 4}, {}, "chat") == []
    assert size_doubts({"tensor-parallel-size": 6}, GPT_OSS, "chat") == []
