# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_foreign
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet import host_plans as _planning
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_equipped_host, plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.groups import Group, environment
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
}


def accelerator(model, count=8, memory_gib=None, **facts):
    return declared_accelerator(load_catalogue(), model, count, memory_gib, facts)


def plans(model, instances, release="0.33.0", count=8, host="h1", facts=None, **settings):
    given = {"instances": instances, "release": release, **SITE, **settings}
    return plan_host(host, accelerator(model, count, **(facts or {})), given)


def plan(model="h200", release="0.33.0", count=8, facts=None, settings=None, **requested):
    instances = {"chat": {"recipe": "openai/gpt-oss-120b", **requested}}
    return plans(model, instances, release, count, facts=facts, **(settings or {}))["chat"]


def refusal(*arguments, **options):
    with pytest.raises(PlanError) as caught:
        plan(*arguments, **options)
    return str(caught.value)


# The bundled catalogue.


@pytest.mark.parametrize("model", ["l4", "l40s", "a100", "h100", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("preset", [None, "latency", "throughput"])
@pytest.mark.parametrize("count", [n if n in (3, 8) else pytest.param(n, marks=pytest.mark.slow) for n in range(1, 17)])
def test_every_number_of_chips_gets_a_size_that_the_model_can_be_divided_by(model, preset, count):
    chosen = {"preset": preset} if preset else {}
    try:
        found = plans(model, {"chat": {"recipe": "openai/gpt-oss-120b", **chosen}}, count=count)
    except PlanError as exc:
        assert "does not fit" in str(exc) or "is not for" in str(exc)
        return
    size = found["chat"]["args"]["tensor-parallel-size"]
    idle = sorted({*range(count)} - {chip for one in found.values() for chip in one["chips"]})
    assert 64 % size == 0 and 2880 % size == 0
    numbers = f"(number {', '.join(map(str, idle))})"
    assert bool(idle) == any(numbers in warning for warning in found["chat"]["warnings"])


@pytest.mark.parametrize(
    ("strategy", "nodes"), [("multi_node_tp", 2), ("multi_node_tep", 3), ("multi_node_dep", 2), ("multi_node_tp_pp", 3)]
)
def test_hosts_of_a_group_get_a_size_that_the_model_can_be_divided_by(strategy, nodes):
    names = [f"h{number}" for number in range(1, nodes + 1)]
    members = {name: {"address": f"10.0.0.{number}", "interface": "eth1"} for number, name in enumerate(names, 1)}
    instance = {"recipe": "openai/gpt-oss-120b", "strategy": strategy, "nodes": names}
    try:
        found = plans("h200", {"chat": instance}, count=7, members=members)["chat"]
    except PlanError as exc:
        # 3, 6, 9 ... chips: none of these divides 64 heads.
        assert f"{strategy} is impossible here: the model's 64 attention heads" in str(exc)
        assert nodes == 3
        return
    assert 64 % found["args"].get("tensor-parallel-size", 1) == 0
    assert 128 % found["args"].get("data-parallel-size", 1) == 0
    assert any("3 of 7 x h200 remain unused (number 4, 5, 6)" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("args", "env", "problem"),
    [
        ({"gpu-memory-utilization": 95}, {}, "expected a number above 0 and of at most 1, found 95"),
        ({"max-num-seqs": 0}, {}, "expected an integer of at least 1, found 0"),
        ({"max-model-len": 1000000}, {}, "max-model-len is 1000000, expected at most 131072, the length of the model"),
        ({"max-model-len": "1M"}, {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}, "max-model-len is 1048576, expected at most"),
        ({"quantization": "awqq"}, {}, "vLLM 0.33.0 has no 'awqq'; nearest: 'awq'"),
        ({"attention-backend": "FLASH_ATTN4"}, {}, "vLLM 0.33.0 has no 'FLASH_ATTN4'; nearest: 'FLASH_ATTN'"),
        ({"block-size": 7}, {}, "expected an integer above 0 (1, or a multiple of 16), found 7"),
        ({"kv-cache-dtype": "fp9"}, {}, "vLLM 0.33.0 has no 'fp9'; nearest: 'fp8'"),
    ],
)
def test_a_value_that_vllm_refuses_at_its_start_is_refused(args, env, problem):
    assert problem in refusal(args=args, env=env)


def test_a_longer_context_than_the_model_s_own_needs_a_word_of_the_site():
    assert plan(args={"max-model-len": 140000}, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"})
    assert plan(args={"max-model-len": 140000, "hf-overrides": {"max_position_embeddings": 140000}})


def test_an_atlas_300i_computes_in_float16(tmp_path):
    (tmp_path / "org").mkdir()
    recipe = "model: {model_id: org/m, context_length: 4096, base_args: [--dtype, bfloat16]}\n"
    (tmp_path / "org" / "m.yaml").write_text(recipe)
    chat = {"recipe": "org/m"}
    found = plans("ascend_310p", {"chat": chat}, "0.23.0", recipe_path=[str(tmp_path)])["chat"]
    assert (found["args"]["dtype"], found["args"]["mamba-ssm-cache-dtype"]) == ("float16", "float16")
    with pytest.raises(PlanError, match="computes in float16 only"):
        plans("ascend_310p", {"chat": {**chat, "args": {"dtype": "bfloat16"}}}, "0.23.0", recipe_path=[str(tmp_path)])


@pytest.mark.parametrize(
    ("args", "sizes"),
    [
        ({"tensor-parallel-size": 1}, [1, 2, 4, 8, 16, 32]),
        # The guides for Qwen3.5-27B and Qwen3.6-27B: at most two sizes with tensor parallelism, and [2,16] with MTP.
        ({"tensor-parallel-size": 2}, [1, 8]),
        (
            {"tensor-parallel-size": 2, "speculative-config": {"method": "mtp", "num_speculative_tokens": 1}},
            [2, 16],
        ),
    ],
)
def test_an_atlas_300i_captures_graphs_of_decoding_of_a_few_sizes(tmp_path, args, sizes):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "m.yaml").write_text("model: {model_id: org/m, base_args: [-cc.cudagraph_mode=PIECEWISE]}\n")

    def found(release="0.30.0", **own):
        chat = {"recipe": "org/m", "args": {**args, **own}}
        return plans("ascend_310p", {"chat": chat}, release, recipe_path=[str(tmp_path)])["chat"]["args"]

    graphs = {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": sizes}
    assert found()["compilation-config"] == graphs
    own = {"cudagraph_mode": "PIECEWISE"}
    assert found(**{"compilation-config": own})["compilation-config"] == own
    assert found(**{"enforce-eager": True})["compilation-config"] == {"cudagraph_mode": "PIECEWISE"}
    assert found("0.23.0")["compilation-config"] == {"cudagraph_mode": "PIECEWISE"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cudagraph-capture-sizes", [1, 2, 4]),
        ("max-cudagraph-capture-size", 16),
        ("optimization-level", 0),
        ("compilation-config.cudagraph_mode", "none"),
        ("compilation-config.max_cudagraph_capture_size", 16),
    ],
)
@pytest.mark.parametrize("by_recipe", [False, True])
def test_an_atlas_300i_captures_the_graphs_that_the_site_or_a_recipe_chose(tmp_path, by_recipe, name, value):
    words = [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    words = ["-O0"] if name == "optimization-level" else words
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "m.yaml").write_text(f"model: {{model_id: org/m, base_args: {words if by_recipe else []}}}\n")
    chat = {"recipe": "org/m", "args": {} if by_recipe else {name: value}}
    found = plans("ascend_310p", {"chat": chat}, "0.30.0", recipe_path=[str(tmp_path)])["chat"]["args"]
    flag, _dot, key = name.partition(".")
    assert str(found[flag]).replace("'", "") == str({key: value} if key else value).replace("'", "")
    assert key or "compilation-config" not in found


AITER = "{model: {model_id: org/m}, hardware_overrides: {amd: {extra_args: [--attention-backend, ROCM_AITER_FA]}}}"
MLA = "{model: {model_id: org/m}, hardware_overrides: {blackwell: {extra_args: [--attention-backend, TOKENSPEED_MLA]}}}"


@pytest.mark.parametrize(
    ("recipe", "kernels", "taken", "refused"),
    [
        (AITER, "rocm_aiter_fa", ["mi300x", "mi355x"], ["mi210", "r9700", "w7900"]),
        (MLA, "TOKENSPEED_MLA", ["b200", "gb300"], ["rtx_pro_6000", "gb10"]),
        ("{model: {model_id: org/m}}", "FLASHMLA", ["h200", "b200"], ["a100", "rtx_5090"]),
        ("{model: {model_id: org/m}}", "FLASH_ATTN", ["a100", "gb10"], ["t4"]),
        ("{model: {model_id: org/m}}", "FLASH_ATTN_MLA", ["h200"], ["b200"]),
    ],
)
def test_kernels_that_vllm_refuses_on_a_chip_are_taken_from_a_recipe_and_refused_of_a_site(
    tmp_path, recipe, kernels, taken, refused
):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "m.yaml").write_text(recipe)

    def found(model, **own):
        return plans(model, {"chat": {"recipe": "org/m", "args": own}}, recipe_path=[str(tmp_path)])["chat"]

    asked = {"attention-backend": kernels}
    for model in taken:
        assert found(model, **asked)["args"]["attention-backend"] == kernels
    for model in refused:
        plan = found(model)
        assert "attention-backend" not in plan["args"]
        warned = [text for text in plan["warnings"] if "the recipe's --attention-backend has no effect: vLLM" in text]
        assert len(warned) == ("overrides" in recipe)
        with pytest.raises(PlanError, match=f"--attention-backend {kernels.upper()} is not for these chips: vLLM"):
            found(model, **asked)
        with pytest.raises(PlanError, match=f"--attention-config.backend {kernels.upper()} is not for these chips"):
            found(model, **{"attention-config": {"backend": kernels}})


@pytest.mark.parametrize("capability", ["11.0", "14.0"])
def test_an_architecture_that_the_catalogue_does_not_have_takes_kernels_that_start_at_8_0(capability):
    chips = replace(accelerator("h200", 1), compute_capability=capability)
    instances = {"chat": {"recipe": "openai/gpt-oss-20b", "args": {"attention-backend": "FLASH_ATTN"}}}
    found = plan_host("h1", chips, {"instances": instances, "release": "0.33.0", **SITE})["chat"]
    assert found["args"]["attention-backend"] == "FLASH_ATTN"


def test_what_vllm_has_for_compute_capability_10_is_taken_from_a_recipe_for_all_of_blackwell(tmp_path):
    """DeepSeek-V4-Flash turns both off for eight RTX PRO 6000 alone; RTX 6000D is as much Blackwell without them."""
    words = "[--moe-backend, deep_gemm_mega_moe, --attention_config.indexer_kv_dtype, mxfp4]"
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "m.yaml").write_text(
        f"model: {{model_id: org/m}}\nhardware_overrides: {{blackwell: {{extra_args: {words}}}}}\n"
    )

    def found(model, **own):
        given = {"recipe_path": [str(tmp_path)]}
        return plans(model, {"chat": {"recipe": "org/m", "args": own}}, **given)["chat"]["args"]

    own = {"moe-backend": "deep_gemm_mega_moe", "attention-config": {"indexer_kv_dtype": "mxfp4"}}
    assert {name: found("b300")[name] for name in own} == own
    assert not {*own} & {*found("rtx_6000_d")}
    for name, value in own.items():
        with pytest.raises(PlanError, match="is not for these chips: vLLM has"):
            found("rtx_6000_d", **{name: value})


@pytest.mark.parametrize("stack", ["cuda", "rocm", "cann"])
def test_a_group_s_own_variables_cause_no_warning(stack):
    group = Group("chat", {"h1": "10.0.0.1"}, 0, "head", "eth1", 1)
    own = environment(group, stack, {"hca": ["mlx5_0"], "gid_index": 3})
    foreign = load_foreign(stack)
    assert [name for name in own if not foreign.covers(name, "0.23.0") and not name.startswith("VLLM_")] == []


@pytest.mark.parametrize("size", [3, 5, 6, 7])
def test_a_size_that_the_model_cannot_be_divided_by_is_refused(size):
    assert refusal(args={"tensor-parallel-size": size}).startswith(
        f"vllm_instances.chat: vLLM cannot start with tensor-parallel-size {size}: the model's 64 attention heads"
    )


def test_a_host_of_eight_is_filled_with_replicas():
    found = plans("h200", {"chat": {"recipe": "openai/gpt-oss-120b"}})
    assert {name: (one["chips"], one["listen"]["port"]) for name, one in found.items()} == {
        "chat": ([0, 1], 8000),
        "chat-2": ([2, 3], 8001),
        "chat-3": ([4, 5], 8002),
        "chat-4": ([6, 7], 8003),
    }
    assert [one["devices"] for one in found.values()] == [
        [f"nvidia.com/gpu={first}", f"nvidia.com/gpu={first + 1}"] for first in (0, 2, 4, 6)
    ]
    assert {one["image"] for one in found.values()} == {"vllm/vllm-openai:v0.33.0"}
    assert {one["args"]["tensor-parallel-size"] for one in found.values()} == {2}


def test_an_atlas_serves_bf16_from_its_own_image():
    found = plan("ascend_a3", "0.23.0", 16)
    assert (found["variant"], found["model"]) == ("bf16", "unsloth/gpt-oss-120b-BF16")
    assert found["image"] == "quay.io/ascend/vllm-ascend:v0.23.0-a3"
    assert found["container"]["user"] == "root"
    assert found["container"]["command"][:2] == ["/bin/bash", "-lc"]
    assert found["env"]["ASCEND_RT_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "/usr/local/dcmi:/usr/local/dcmi:ro" in found["container"]["mounts"]
    assert found["warnings"] == [
        "vllm_instances.chat: requests of 4,096 tokens are what vllm-ascend's guide to gpt-oss-120b serves, the model "
        "has 131,072; for longer requests set args tensor-parallel-size 8 and max-model-len",
        "vllm_instances.chat: no manifest pins the weights of unsloth/gpt-oss-120b-BF16, so no host can fetch them; "
        "make a manifest: ansible-playbook playbooks/pin_weights.yml -e pin_model=unsloth/gpt-oss-120b-BF16 "
        "-e pin_dest=DIR, and set weights_manifest_path: [DIR]",
    ]


@pytest.mark.parametrize("recipe", ["openai/gpt-oss-120b", "openai/gpt-oss-20b"])
def test_a_length_that_the_site_chose_is_no_warning(recipe):
    def warned(args):
        warnings = plan("ascend_a3", "0.23.0", 16, recipe=recipe, args=args)["warnings"]
        return [text for text in warnings if "requests of 4,096 tokens" in text]

    assert len(warned({})) == 1
    assert warned({"max-model-len": 4096}) == warned({"max_model_len": "4096"}) == []


def test_a_fact_of_the_host_decides_a_rule():
    old, new, unknown = (plan("mi300x", facts=facts) for facts in ({"mec_firmware": 176}, {"mec_firmware": 177}, None))
    assert old["env"]["HSA_NO_SCRATCH_RECLAIM"] == unknown["env"]["HSA_NO_SCRATCH_RECLAIM"] == "1"
    assert "HSA_NO_SCRATCH_RECLAIM" not in new["env"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "ascend_a2", "release": "0.23.0", "variant": "default"},
            "vllm_instances.chat.variant: 'default' of recipe openai/gpt-oss-120b is not for ascend_a2: vLLM Ascend "
            "has no "
            "MXFP4 kernels for this chip, it serves the weights in bfloat16; the variants that run on it: bf16 "
            "(weights unsloth/gpt-oss-120b-BF16)",
        ),
        (
            {"variant": "bf61"},
            "vllm_instances.chat.variant: recipe openai/gpt-oss-120b has no variant 'bf61'; nearest: 'bf16'",
        ),
        (
            {"preset": "latancy"},
            "vllm_instances.chat.preset: recipe openai/gpt-oss-120b has no preset 'latancy'; nearest: 'latency'",
        ),
        (
            {"features": ["tool_caling"]},
            "vllm_instances.chat.features: recipe openai/gpt-oss-120b has no feature 'tool_caling'; nearest: "
            "'tool_calling'",
        ),
        (
            {"features": ["spec_decoding"], "feature_modes": {"spec_decoding": "eagle_v3"}},
            "vllm_instances.chat.feature_modes.spec_decoding: recipe openai/gpt-oss-120b has no mode 'eagle_v3'; "
            "nearest: "
            "'eagle3_v3'",
        ),
        (
            {"strategy": "single_node_tep"},
            "vllm_instances.chat.strategy: recipe openai/gpt-oss-120b does not list 'single_node_tep' for h200; "
            "nearest: "
            "'single_node_tp'",
        ),
        (
            {"args": {"tensor-parallel-size": 16}},
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 16 (1 replica of 16); the host has 8 x h200; lower "
            "tensor-parallel-size or replicas, or use another host",
        ),
        (
            {"model": "rtx_5090", "count": 1},
            "vllm_instances.chat: does not fit: 65.9 GiB of weights, 4.6 GiB of KV cache for one request of 131072 "
            "tokens and 1.8 GiB for activations and graphs on each chip make 72.3 GiB, 1 x rtx_5090 have 32.0 GiB, of "
            "which gpu-memory-utilization 0.92 allows 29.4 GiB; take more chips (tensor-parallel-size), a smaller "
            "max-model-len or variant, or another host; as many chips of a100, h100, h200, b200 would do",
        ),
        (
            {"facts": {"driver_version": "570.26"}},
            "vllm_release '0.33.0' needs driver 580.65.06 or newer for cuda, the host has 570.26; upgrade the "
            "driver, or "
            "choose an older release",
        ),
        (
            {"args": {"cuda-graph-sizes": 2048}},
            "vllm_instances.chat: --cuda-graph-sizes: vLLM 0.33.0 has no such flag, the last release here that has "
            "it is "
            "0.11.0; instead: --max-cudagraph-capture-size for one number, --cudagraph-capture-sizes for several",
        ),
        (
            {"args": {"max-cudagraph-capture-size": 8}, "release": "0.11.0"},
            "vllm_instances.chat: --max-cudagraph-capture-size: vLLM 0.11.0 has no such flag, the first release "
            "here that has "
            "it is 0.13.0; nearest: 'cuda-graph-sizes'",
        ),
        (
            {"env": {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "1"}},
            "vllm_instances.chat: VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8: vLLM 0.33.0 does not read this variable, the "
            "last "
            "release here that has it is 0.23.0; instead: --quantization-config.moe.activation mxfp8, and "
            "--moe-backend "
            "flashinfer_trtllm to pin the kernel",
        ),
        (
            {"args": {"cudagraph-capture-sizes": [1, 2], "max-cudagraph-capture-size": 8}},
            "vllm_instances.chat: --cudagraph-capture-sizes and --max-cudagraph-capture-size exclude each other: "
            "the sizes "
            "name the largest themselves, vLLM refuses another one; take one away with null",
        ),
        (
            {"model": "mi300x", "runtime": "venv"},
            "vllm_instances.chat.runtime: release '0.33.0' has no lock of wheels for this stack, so the host "
            "cannot have a virtual environment; use the runtime 'container', or name a lock (requirements) "
            "in a release of your own",
        ),
        (
            {"model": "mi300x", "release": "0.32.0"},
            "vllm_release '0.32.0' does not support stack 'rocm' (accelerator 'mi300x'); it supports: cpu, cuda; set "
            "vllm_release: '0.33.0' for these hosts, or leave it out",
        ),
    ],
)
def test_what_cannot_be_served_is_one_sentence(options, message):
    assert refusal(**options) == message


def test_settings_of_which_vllm_ignores_one_are_a_warning():
    assert plan(args={"enforce-eager": True, "max-cudagraph-capture-size": 8})["warnings"] == [
        "vllm_instances.chat: --enforce-eager and --max-cudagraph-capture-size are both set: eager mode captures "
        "no CUDA "
        "graphs, vLLM would ignore the size"
    ]


def test_unknown_recipe_release_and_accelerator_get_the_nearest_name():
    with pytest.raises(
        PlanError,
        match=r"^vllm_instances.chat.recipe: no recipe 'openai/gpt-oss-12b' in .*; nearest: 'openai/gpt-oss-120b'$",
    ):
        plans("h200", {"chat": {"recipe": "openai/gpt-oss-12b"}})
    assert refusal(release="0.34.0").startswith("vllm_release: no release '0.34.0' in ")
    assert "; nearest: '0.33.0'; known: 0.10.2, 0.11.0, " in refusal(release="0.34.0")
    with pytest.raises(PlanError, match=r"^vllm_instances.chat.release: no release '0.34.0' in "):
        plans("h200", {"chat": {"recipe": "openai/gpt-oss-120b", "release": "0.34.0"}})
    with pytest.raises(AcceleratorError) as caught:
        accelerator("h2000")
    assert str(caught.value) == ("accelerator 'h2000' of the inventory is in no file of the catalogue; nearest: 'h200'")


@pytest.mark.parametrize("stack", ["cuda", "rocm"])
def test_a_lock_for_another_python_than_the_wheels(tmp_path, stack):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/lock.txt").write_text("# target: cp311-x86_64\nvllm==0.33.0\n")
    (tmp_path / "mine.yml").write_text(
        f'vllm: "0.33.0"\nstacks: {{{stack}: {{runtime: venv, requirements: lock.txt, python: "3.12"}}}}\n'
    )
    model = {"cuda": "h200", "rocm": "mi300x"}[stack]
    assert refusal(model, "mine", settings={"release_path": [str(tmp_path)]}) == (
        f"{tmp_path}/requirements/lock.txt: the lock is for Python 3.11, the wheels of release 'mine' for this "
        f"stack are for "
        "Python 3.12 only; another Python would silently get another vendor's wheel"
    )


def test_a_release_without_a_table(tmp_path):
    (tmp_path / "nightly.yml").write_text('vllm: "9.9.9"\nstacks: {cuda: {runtime: container, image: a/b:nightly}}\n')
    settings = {"release_path": [str(tmp_path)]}
    message = refusal(release="nightly", settings=settings)
    assert message.startswith("no option table for vLLM 9.9.9 in ")
    assert message.endswith("; or set vllm_strict: false to use the newest table")
    lenient = {**settings, "strict": False}
    found = plan(release="nightly", settings=lenient, args={"brand-new-flag": 1})
    assert found["vllm_version"] == "9.9.9"
    assert any("--brand-new-flag: vLLM 0.33.0 has no such flag" in warning for warning in found["warnings"])


def test_a_site_s_own_recipe_goes_before_the_bundled_one(tmp_path):
    (tmp_path / "openai").mkdir()
    (tmp_path / "openai/gpt-oss-120b.yaml").write_text(
        "model: {model_id: openai/gpt-oss-120b, base_args: [--seed, 7]}\n"
    )
    assert plan(settings={"recipe_path": [str(tmp_path)]})["args"]["seed"] == 7


def test_instances_that_are_none_are_refused_before_anything_is_read():
    with pytest.raises(PlanError, match=r"^vllm_instances: found a list, expected a mapping of names to instances"):
        plan_host("h1", None, {"instances": ["chat"], "release": "no such release"})


# Memory of plans.


@pytest.fixture
def counted(monkeypatch):
    """The number of times that plans were made, from an empty memory."""
    calls = []
    made = _planning.plan_instances

    def counting(host, *arguments):
        calls.append(host)
        return made(host, *arguments)

    monkeypatch.setattr(_planning, "_PLANS", {})
    monkeypatch.setattr(_planning, "plan_instances", counting)
    return calls


def test_hosts_that_are_alike_are_planned_once(counted):
    instances = {"chat": {"recipe": "openai/gpt-oss-20b"}}
    found = [plans("h200", instances, host=f"h{number}") for number in range(50)]
    assert counted == ["h0"]
    assert [one["chat"]["host"] for one in found] == [f"h{number}" for number in range(50)]
    assert {**found[0]["chat"], "host": ""} == {**found[49]["chat"], "host": ""}


@pytest.mark.parametrize(
    "other",
    [
        {"model": "h100"},
        {"count": 4},
        {"release": "0.25.1"},
        {"facts": {"driver_version": "590.1"}},
        {"registry": "mirror:5000"},
        {"drain_timeout": 5},
        {"secrets": {"chat": ["A"]}},
        {"instances": {"chat": {"recipe": "openai/gpt-oss-20b", "port": 9000}}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_host_that_differs_is_planned_for_itself(counted, other):
    usual = {"model": "h200", "instances": {"chat": {"recipe": "openai/gpt-oss-20b"}}}
    plans(**usual)
    plans(**usual)
    plans(**{**usual, **other})
    assert len(counted) == 2


def test_an_instance_that_spans_hosts_is_planned_for_each(counted):
    instances = {"chat": {"recipe": "openai/gpt-oss-120b", "nodes": ["h1", "h2"]}}
    members = {f"h{rank}": {"address": f"10.0.0.{rank}", "interface": "eth1"} for rank in (1, 2)}
    found = [plans("h200", instances, host=host, members=members)["chat"] for host in ("h1", "h2", "h1")]
    assert counted == ["h1", "h2"]
    assert [one["args"]["node-rank"] for one in found] == [0, 1, 0]


@pytest.mark.parametrize(("model", "release"), [("h200", "0.33.0"), ("mi300x", "0.33.0"), ("ascend_a2", "0.30.0")])
def test_a_site_without_a_release_gets_the_stack_s(model, release):
    found = plan(model, release="")
    assert (found["release"], found["vllm_version"]) == (release, release)


def test_unknown_keys_below_meta_are_warnings_of_the_plan(tmp_path):
    (tmp_path / "org").mkdir()
    file = tmp_path / "org" / "model.yaml"
    file.write_text("meta: {popularity: high}\nmodel: {model_id: org/model}\n")
    found = plan(settings={"recipe_path": [str(tmp_path)]}, recipe="org/model")
    assert found["warnings"][0].startswith(f"{file}: meta.popularity: unknown key, which has no effect; ")


RESIDENTS = {
    "chat": {"recipe": "openai/gpt-oss-20b", "residents": "a"},
    "large": {"recipe": "openai/gpt-oss-120b", "port": 8100, "residents": "a", "args": {"tensor-parallel-size": 1}},
}


@pytest.mark.parametrize("model", ["h200", "mi300x"])
def test_models_of_the_catalogue_share_chips(model):
    found = plans(model, RESIDENTS, count=1, facts={"cpu": {"memory_mib": 512 * 1024}})
    assert [found[name]["chips"] for name in RESIDENTS] == [[0], [0]]
    assert not [line for one in found.values() for line in one["warnings"] if "residents" in line or "GUARD" in line]


def test_what_a_sleeping_model_keeps_of_a_chip_follows_from_its_shape():
    """A GPU sweep found 3.46 GiB for gpt-oss-20b on an H200; the estimate is a little above that."""
    tight = {**RESIDENTS, "large": {**RESIDENTS["large"], "args": {"gpu-memory-utilization": 0.98}}}
    with pytest.raises(PlanError, match=r"instances that sleep beside it keep about 3\.[5-9] GiB; set it to 0\.97"):
        plans("h200", tight, count=1)


def test_the_memory_of_the_host_counts_and_equal_hosts_share_their_plans(counted):
    with pytest.raises(PlanError, match=r"in the memory of the host: chat .* GiB, large .* GiB"):
        plans("h200", RESIDENTS, count=1, facts={"cpu": {"memory_mib": 32 * 1024}})
    calls = len(counted)
    alone = {"chat": {"recipe": "openai/gpt-oss-20b"}}
    # It differs a little between them.
    for memory in (32 * 1024, 32 * 1024 + 90):
        assert plans("h200", alone, count=1, facts={"cpu": {"memory_mib": memory}})
    assert len(counted) == calls + 1


def test_a_release_without_a_value_is_that_of_the_stack():
    assert plan(release=None) == plan(release="")


def equipped(model="h200", **settings):
    given = {"instances": {"chat": {"recipe": "openai/gpt-oss-20b"}}, **SITE, **settings}
    return plan_equipped_host("h1", accelerator(model, 1), given)


@pytest.mark.parametrize(
    ("model", "release", "settings", "message"),
    [
        (
            "h200",
            "0.33.0",
            {"runtime": "venv"},
            "vllm_wheel_index: found nothing, and vllm_runtime is venv, so wheels come from an index; expected the "
            "address of the site's mirror, such as http://mirror/simple/, or PyPI's for hosts with internet",
        ),
        (
            "h200",
            "0.33.0",
            {"instances": {"a": {"recipe": "openai/gpt-oss-20b", "runtime": "venv"}}},
            "vllm_wheel_index: found nothing, and vllm_instances.a.runtime is venv, ",
        ),
        # The runtime that the release has for CPUs, whose lock has a wheel of PyTorch that is on no public index.
        (
            "cpu",
            "0.32.0",
            {"instances": {"chat": {"recipe": "baremetal/gpt-oss-smoke"}}},
            "vllm_wheel_index: found nothing, and vllm_instances.chat.runtime is venv, so wheels come from an index; "
            "expected the address of the site's mirror, such as http://mirror/simple/; PyPI does not have all wheels",
        ),
    ],
)
def test_a_virtual_environment_needs_an_index(model, release, settings, message):
    with pytest.raises(PlanError) as caught:
        equipped(model, release=release, wheel_index="", **settings)
    assert str(caught.value).startswith(message)
    for index in ({}, {"wheel_index": "http://mirror/simple/"}):  # no index at all: a trial of a recipe, without a site
        assert equipped(model, release=release, **settings, **index)


def test_a_container_needs_no_index_and_a_router_does():
    assert equipped(release="0.33.0", runtime="container", wheel_index="")
