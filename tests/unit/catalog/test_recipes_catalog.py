# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.versions import satisfies
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_exclusive,
    load_foreign,
    load_replaced,
    load_table,
    releases,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.recipe_schema import check_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import load_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.arguments import lay, read_words, to_mapping
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

CATALOG = Path(__file__).resolve().parents[3] / "catalog"
RECIPES = {name: CATALOG / "recipes" / "openai" / f"{name}.yml" for name in ("gpt-oss-20b", "gpt-oss-120b")}
RELEASES = sorted((path.stem for path in (CATALOG / "releases").glob("*.yml")), key=lambda name: name.split("."))
CATALOGUE = load_catalogue()
SITE = {
    "weights_root": "/srv/weights",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 30,
}
# What a recipe may call the generation of a stack in the place of a model.
STACK_OF_BLOCK = {"amd": "rocm", "npu": "cann", "xpu": "xpu", "cpu": "cpu", "hopper": "cuda", "blackwell": "cuda"}
ARGS = ("base_args", "extra_args", "args", "vllm_args")
ENV = ("base_env", "extra_env", "env")


@functools.lru_cache(maxsize=None)
def recipe(name):
    return load_yaml(RECIPES[name].read_text(encoding="utf-8"))


def blocks(value, path=(), when=None):
    """Yield (path, words, variables, conditions) of everything in a recipe that adds to a command."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from blocks(entry, (*path, number), when)
    if not isinstance(value, dict):
        return
    when = {**(when or {}), **(value.get("when") or {})}
    words = [word for key in ARGS for word in value.get(key) or [] if isinstance(value.get(key), list)]
    env = {name: text for key in ENV if isinstance(value.get(key), dict) for name, text in value[key].items()}
    if words or env:
        yield path, words, env, when
    for key, entry in value.items():
        if key not in (*ARGS, *ENV, "when", "unless", "guards"):
            yield from blocks(entry, (*path, key), when)


ALL_BLOCKS = [
    pytest.param(name, path, words, env, when, id=".".join([name, *map(str, path)]))
    for name in RECIPES
    for path, words, env, when in blocks(
        {key: part for key, part in recipe(name).items() if key not in ("guards", "known_issues")}
    )
]


def listed(value):
    return value if isinstance(value, list) else [value] if value else []


def stack_of(path, when):
    """Return the stack that a block is for, None for any."""
    if "stack" in when:
        return when["stack"]
    for part in path:
        if part in STACK_OF_BLOCK:
            return STACK_OF_BLOCK[part]
    for key in ("accelerator", "generation"):
        for name in listed(when.get(key)):
            return next(entry.stack for entry in CATALOGUE.models.values() if name in (entry.key, entry.generation))
    return None


def releases_of(name, path, when):
    """Return the releases whose tables a block must fit.

    Those that satisfy its conditions; where none does, its range lies between two tables and both must fit.
    """
    spec = f">={recipe(name)['model']['min_vllm_version']},{when.get('vllm', '>=0')}"
    versions = [version for version in releases() if satisfies(version, spec)]
    if not versions:
        low = spec.rpartition(">=")[2].partition(",")[0]
        above = next(version for version in releases() if satisfies(version, f">={low}"))
        versions = [releases()[releases().index(above) - 1], above]
    return versions if stack_of(path, when) != "xpu" else ["0.33.0"]


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_follows_the_schema(name):
    check_recipe(recipe(name), f"{name}.yml")


@pytest.mark.parametrize(("name", "path", "words", "env", "when"), ALL_BLOCKS)
def test_every_word_is_known_to_every_release_that_can_get_it(name, path, words, env, when):
    for version in releases_of(name, path, when):
        table = load_table(version)
        settings = {setting.name: setting for setting in read_words(words, table)}
        args = functools.reduce(lay, settings.values(), {})
        assert table.check_args(to_mapping(args, table)) == []
        assert table.check_env(env, load_foreign(stack_of(path, when))) == []


def names_of_hardware(value, path=()):
    """Yield every name of hardware in a recipe: keys of maps by hardware, values of conditions and lists."""
    if isinstance(value, list):
        for entry in value:
            yield from names_of_hardware(entry, path)
    if not isinstance(value, dict):
        return
    for key, entry in value.items():
        if key in ("hardware", "hardware_overrides", "default_variant") and isinstance(entry, dict):
            yield from entry
        if key == "tp" and isinstance(entry, dict):
            yield from entry
        if key in ("accelerator", "generation") and path[-1:] in (("when",), ("unless",)):
            yield from entry if isinstance(entry, list) else [entry]
        if key == "supported_hardware":
            yield from entry
        yield from names_of_hardware(entry, (*path, key))


@pytest.mark.parametrize("name", RECIPES)
def test_every_name_of_hardware_is_one_of_the_catalogue(name):
    known = {"cpu", "default"}
    for key, entry in CATALOGUE.models.items():
        known |= {
            key,
            entry.generation,
            entry.vendor,
            Accelerator(key, entry.stack, entry.generation, entry.vendor, 1).upstream_generation,
        }
    assert set(names_of_hardware(recipe(name))) - known == set()


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_names_is_there(name):
    data = recipe(name)
    features = set(data["features"])
    assert set(data["opt_in_features"]) <= features
    for _path, _words, _env, when in blocks(data):
        assert set(when.get("features", [])) <= features
    for feature in data["features"].values():
        assert feature.get("default_mode") in (None, *feature.get("modes", ()))
    assert set(data["meta"]["default_variant"].values()) <= set(data["variants"])


def plan(accelerator, release, requested, count=8, memory_gib=None, **facts):
    chips = declared_accelerator(CATALOGUE, accelerator, count, memory_gib, facts)
    return plan_host("host", chips, {**SITE, "release": release, "instances": {"chat": requested}})["chat"]


# One of each kind that the guides, or vLLM's own choices, tell apart.
HARDWARE = (
    "a100", "l40s", "h100", "h100_nvl", "h200", "b200", "b300", "gb200", "rtx_5090", "mi300x", "mi325x", "mi350x",
    "mi355x", "r9700", "ascend_a2", "ascend_a3", "arc_pro_b60", "arc_pro_b70", "cpu",
)  # fmt: skip
CHOICES = [
    *[(preset, None) for preset in (None, "throughput", "balanced", "latency", "agents", "evaluation")],
    *[(preset, ["fast_boot"]) for preset in (None, "throughput", "balanced", "latency", "agents")],
    *[(preset, ["spec_decoding", "tool_calling"]) for preset in (None, "latency")],
    ("throughput", ["benchmark"]),
]
REASONS = (
    "does not fit",
    "does not support stack",
    "no variant of this recipe",
    "foreign variables for the stack 'xpu'",
    "is built with CUDA 12",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "release", [*(pytest.param(each, marks=pytest.mark.long) for each in RELEASES[:-1]), RELEASES[-1]]
)
@pytest.mark.parametrize("name", RECIPES)
def test_every_choice_on_all_hardware_is_a_plan_or_refused_for_memory_stack_or_variant(name, release):
    planned = 0
    for accelerator in HARDWARE:
        for preset, features in CHOICES:
            requested = {"recipe": f"openai/{name}", "preset": preset, "features": features}
            requested = {key: value for key, value in requested.items() if value is not None}
            try:
                plan(accelerator, release, requested, memory_gib=256 if accelerator == "cpu" else None)
                planned += 1
            except PlanError as exc:
                assert any(reason in str(exc) for reason in REASONS), f"{accelerator} {preset} {features}: {exc}"
    assert planned


BIG = "gpt-oss-120b"
ONE_CHIP = {"tensor-parallel-size": 1, "gpu-memory-utilization": 0.9}


def test_firmware_from_177_on_needs_no_scratch_reclaim():
    requested = {"recipe": f"openai/{BIG}"}
    assert "HSA_NO_SCRATCH_RECLAIM" not in plan("mi300x", "0.33.0", requested, mec_firmware=177)["env"]
    assert plan("mi300x", "0.33.0", requested, mec_firmware=176)["env"]["HSA_NO_SCRATCH_RECLAIM"] == "1"
    assert plan("mi300x", "0.33.0", requested)["env"]["HSA_NO_SCRATCH_RECLAIM"] == "1"


@pytest.mark.parametrize(
    ("accelerator", "size"),
    [("a100", 1), ("h100", 2), ("h200", 2), ("b200", 1), ("gb200", 1), ("mi300x", 8), ("ascend_a3", 4)],
)
def test_big_model_takes_as_many_chips_as_the_guides_say(accelerator, size):
    release = "0.23.0" if accelerator.startswith("ascend") else "0.33.0"
    found = plan(accelerator, release, {"recipe": f"openai/{BIG}"})
    assert found["args"]["tensor-parallel-size"] == size
    assert found["variant"] == ("bf16" if accelerator.startswith("ascend") else "default")


FAST_BOOT = {"features": ["fast_boot"]}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("accelerator", ["h200", "b200", "mi300x", "a100"])
def test_balanced_sets_no_limit_that_vllm_sets_itself(name, accelerator):
    found = plan(accelerator, "0.33.0", {"recipe": f"openai/{name}", "preset": "balanced"})
    assert not {"max-num-seqs", "max-num-batched-tokens", "stream-interval"} & set(found["args"])


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("preset", ["balanced", "latency", "agents"])
def test_an_interactive_preset_sends_every_token_at_once(name, preset):
    for release in ("0.13.0", "0.33.0"):
        found = plan("b200", release, {"recipe": f"openai/{name}", "preset": preset})
        assert "stream-interval" not in found["args"]
    jobs = plan("b200", "0.33.0", {"recipe": f"openai/{name}", "preset": "throughput"})
    assert jobs["args"]["stream-interval"] == 20


@pytest.mark.parametrize("preset", ["balanced", "throughput"])
def test_graphs_on_hopper_go_up_to_a_full_batch_where_that_was_measured(preset):
    asked = {"recipe": "openai/gpt-oss-20b", "preset": preset}
    sizes = plan("h100", "0.25.1", asked)["config"]["cudagraph-capture-sizes"]
    assert [int(size) for size in sizes[-8:]] == [1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192]
    # Up to 1024 those of vLLM itself.
    assert len(sizes) == 83 + 7
    # Fewer are as fast with 0.33.0.
    few = plan("h200", "0.33.0", asked)["config"]["cudagraph-capture-sizes"]
    assert (len(few), few[0], few[-1]) == (32, "1", "8192")
    for accelerator, release, more in (("h100", "0.23.0", {}), ("b200", "0.25.1", {}), ("h100", "0.25.1", FAST_BOOT)):
        assert "cudagraph-capture-sizes" not in plan(accelerator, release, {**asked, **more})["config"]


@pytest.mark.parametrize(
    ("accelerator", "release", "largest"),
    [
        ("h100", "0.23.0", 2048), ("b200", "0.25.1", 2048), ("a100", "0.25.1", 2048), ("l40s", "0.32.0", 2048),
        ("h100", "0.25.1", None), ("h200", "0.33.0", None),
    ],
)  # fmt: skip
def test_throughput_has_all_sizes_up_to_2048_where_the_coarse_ones_were_not_measured(accelerator, release, largest):
    config = plan(accelerator, release, {"recipe": "openai/gpt-oss-20b", "preset": "throughput"})["config"]
    found = config.get("max-cudagraph-capture-size")
    assert (found and int(found)) == largest


def test_a_largest_graph_with_the_sizes_of_balanced_is_refused_with_the_way_out():
    asked = {"recipe": "openai/gpt-oss-20b", "preset": "balanced"}
    with pytest.raises(PlanError, match=r"max-cudagraph-capture-size exclude each other: .*; take one away with null"):
        plan("h100", "0.25.1", {**asked, "args": {"max-cudagraph-capture-size": 2048}})
    config = plan(
        "h100", "0.25.1", {**asked, "args": {"cudagraph-capture-sizes": None, "max-cudagraph-capture-size": 2048}}
    )["config"]
    assert int(config["max-cudagraph-capture-size"]) == 2048
    assert "cudagraph-capture-sizes" not in config


def test_latency_on_cuda_compiles_no_sampler():
    asked = {"recipe": "openai/gpt-oss-20b", "preset": "latency"}
    assert plan("h100", "0.25.1", asked)["env"]["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in plan("mi300x", "0.33.0", asked)["env"]


@pytest.mark.parametrize("size", ["20b", "120b"])
def test_processes_are_forked_where_that_was_measured(size):
    method = "VLLM_WORKER_MULTIPROC_METHOD"
    asked = {"recipe": f"openai/gpt-oss-{size}", "preset": "balanced"}
    assert plan("h100", "0.25.1", asked)["env"][method] == "fork"
    assert plan("h100", "0.25.1", {**asked, "env": {method: "spawn"}})["env"][method] == "spawn"
    assert method not in plan("h100", "0.23.0", asked)["env"]
    assert method not in plan("b200", "0.25.1", asked)["env"]


def test_a_recipe_without_a_preset_names_those_of_its_class():
    with pytest.raises(PlanError) as caught:
        plan("h200", "0.33.0", {"recipe": "baremetal/gpt-oss-smoke", "preset": "balance"})
    assert str(caught.value) == (
        "vllm_instances.chat.preset: recipe baremetal/gpt-oss-smoke has no preset 'balance'; nearest: 'balanced'"
    )


@pytest.mark.parametrize(
    ("accelerator", "requested", "text"),
    [
        ("h100", {"args": {"gpu-memory-utilization": 0.95}}, "set it below 0.95"),
        ("ascend_a2", {"variant": "default"}, "no MXFP4 kernels"),
        ("ascend_a2", {"variant": "default"}, f"the variants that run on it: bf16 (weights unsloth/{BIG}-BF16)"),
        ("h200", {"features": ["chunked_streaming"], "release": "0.11.0"}, "needs vLLM 0.13"),
        ("a100", {"features": ["fp8_kv_cache"]}, "does not run on a100"),
        ("h200", {"preset": "latency", "args": {"cudagraph-capture-sizes": [1, 2]}}, "vLLM refuses another one"),
        ("b200", {"env": {"VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": "1"}, "release": "0.17.1"}, "pick one of them"),
        ("h200", {"env": {"VLLM_PORT": "x"}}, 'instances.chat: VLLM_PORT: expected the number of a port, found "x"'),
        ("h200", {"env": {"VLLM_ENGINE_READY_TIMEOUT_S": "x"}}, "VLLM_ENGINE_READY_TIMEOUT_S: expected an integer"),
        ("h200", {"env": {"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "INT5"}}, "expected one of FP, INT8, INT6, INT4"),
        ("h200", {"args": {"cuda-graph-sizes": 2048}}, "instead: --max-cudagraph-capture-size"),
        ("h200", {"env": {"VLLM_USE_FLASHINFER_MXFP4_MOE": "1"}}, "instead: VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 until"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(accelerator, requested, text):
    release = "0.23.0" if accelerator.startswith("ascend") else "0.33.0"
    with pytest.raises(PlanError) as caught:
        plan(accelerator, release, {"recipe": f"openai/{BIG}", **requested})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        ({"args": {**ONE_CHIP, "max-num-batched-tokens": 8192}}, "runs out of memory"),
        ({"args": {**ONE_CHIP, "max-num-batched-tokens": None}}, "runs out of memory"),
        ({"features": ["tool_server"]}, "EXA_API_KEY"),
        ({"preset": "latency", "args": {"enforce-eager": True}}, "captures no CUDA graphs"),
        ({"env": {"PYTHON_EXECUTION_BACKEND": "dangerously_use_uv"}}, "no sandbox"),
    ],
)
def test_what_may_not_work_is_warned_of(requested, text):
    assert any(
        text in warning for warning in plan("h100", "0.33.0", {"recipe": f"openai/{BIG}", **requested})["warnings"]
    )


def test_one_of_the_two_settings_for_a_single_h100_is_enough():
    requested = {"recipe": f"openai/{BIG}", "args": {"tensor-parallel-size": 1, "max-num-batched-tokens": 8192}}
    assert not any("runs out of memory" in warning for warning in plan("h100", "0.33.0", requested)["warnings"])


def test_names_that_are_gone_are_in_no_table_from_that_release_on():
    # 0.33.0 took this one back, as another name of --no-enable-log-requests.
    names = {name: entry.get("since", "0") for name, entry in load_replaced().items() if name != "disable-log-requests"}
    for name, since in names.items():
        there = [version for version in releases() if name in load_table(version).env or table_flag(name, version)]
        assert not any(satisfies(version, f">={since}") for version in there), f"{name} is still there in {there[-1]}"


def table_flag(name, version):
    table = load_table(version)
    head, *keys = name.split(".")
    return table.has_key((head, *keys)) if keys else table.canonical(f"--{name}") is not None


def test_settings_that_exclude_each_other_are_known_to_a_release():
    tables = [load_table(version) for version in releases()]
    for group in load_exclusive():
        assert group["because"]
        for setting in (name for item in group["settings"] for name in ([item] if isinstance(item, str) else item)):
            known = [table for table in tables if setting in table.env or table_flag(setting, table.version)]
            assert known, f"{setting} is in no table"


REAL = ("SmolLM2-135M-Instruct", "all-MiniLM-L6-v2")


@pytest.mark.parametrize("name", REAL)
def test_a_model_with_real_weights_is_planned_on_a_processor_and_on_a_chip(name):
    check_recipe(load_yaml((CATALOG / f"recipes/real/{name}.yaml").read_text(encoding="utf-8")), name)
    requested = {"recipe": f"real/{name}"}
    on_cpu = plan("cpu", "0.32.0", requested, count=1, memory_gib=16)["args"]
    on_chip = plan("h100", "0.33.0", requested, count=1)["args"]
    assert on_cpu["dtype"] == "float32" and on_cpu["enforce-eager"] is True and "dtype" not in on_chip
    assert (on_cpu["max-model-len"], on_cpu.get("runner")) == (on_chip["max-model-len"], on_chip.get("runner"))
    assert on_chip["max-model-len"] == (4096 if name == REAL[0] else 256)
