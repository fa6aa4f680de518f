# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's own configuration step judges the plans: requests of recipes, single limits, and relations of two settings.

Recipes x accelerators x 1 to 16 chips x presets and features, a sample of them here and all with `make long`. The
recipes are those of the collection and those whose config.json is in shapes.yml; upstream's others meet the real parser
alone (test_upstream_recipes.py), and no class of Ascend, Intel or Gaudi is here.
"""

from __future__ import annotations

import collections
import json
import random
import re

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_exclusive,
    load_table,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.arguments import to_argv
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.side_models import _NO_DRAFTS

from tests.parity import seeds
from tests.parity.engine import SHAPES
from tests.parity.real import NEWEST, RELEASES, Refused
from tests.parity.reasons import reason
from tests.parity.test_bundled import MODELS, RECIPES, requests_of

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
SAMPLES = sorted({*SHAPES, *RECIPES})
# Upstream's own classes of these; vllm-ascend's and Intel's are other packages.
STACKS = ("cuda", "rocm", "cpu")
SAMPLE = 24
# model_type in config.json, where it is not the architecture's name with underscores.
TYPES = {"Ernie4_5": "ernie4_5", "Gemma3": "gemma3_text", "Llama4": "llama4_text"}
TYPES_OF = {
    name: TYPES.get(short, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", short).lower())
    for name in _NO_DRAFTS
    for short in [name.removesuffix("ForCausalLM")]
}


def hardware(model, count):
    memory = {"memory_gib": 1024} if model == "cpu" else {}
    return declared_accelerator(load_catalogue(), model, count, **memory)


def cases(name, recipe):
    """Yield hardware and request of every case of a recipe."""
    for model in MODELS:
        for count in range(1, 17) if model != "cpu" else (1,):
            for instance in requests_of(name, recipe, model):
                if "nodes" not in instance:
                    yield hardware(model, count), instance


def planned(accelerator, instance, release, shapes, recipes):
    """Return the plan of a request. Raises PlanError."""
    paths = {"weights_manifest_path": [str(shapes)], "recipe_path": [str(recipes)]}
    settings = seeds.settings(f"every-stack-{release}", {**instance, "replicas": 1}, **paths)
    return plan_host("host", accelerator, settings)["chat"]


def check(name, release, shapes, recipes, engine, choose):
    paths = [] if name in RECIPES else [str(recipes)]
    recipe, counted = load_recipe(name, paths), collections.Counter()
    for accelerator, instance in choose([case for case in cases(name, recipe) if case[0].stack in STACKS]):
        try:
            plan = planned(accelerator, instance, release, shapes, recipes if paths else shapes)
        except PlanError as exc:
            assert reason(exc, recipe), f"{instance} on {accelerator.count} x {accelerator.model}: {exc}"
            counted["refused"] += 1
            continue
        if not {*plan["models"]} <= {*SAMPLES}:
            # Weights of another variant, or a draft model: nobody has their config.json here.
            continue
        try:
            engine.judge(plan, accelerator)
        except Refused as exc:
            raise AssertionError(f"{instance} on {accelerator.count} x {accelerator.model}: {exc}") from exc
        counted["started"] += 1
    assert counted["started"], counted


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_of_plans_gets_a_configuration_of_vllm(name, release, shapes, upstream_recipes, real_engines):
    chosen = random.Random(name + release)
    check(name, release, shapes, upstream_recipes, real_engines[release], lambda all_: chosen.sample(all_, SAMPLE * 4))


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_plan_gets_a_configuration_of_vllm(name, release, shapes, upstream_recipes, real_engines):
    check(name, release, shapes, upstream_recipes, real_engines[release], lambda all_: all_)


# What is wrong with a value, by what its entry in the table holds.
def wrong_values(entry):
    """Yield values just outside the limits of an entry."""
    if "ge" in entry:
        yield entry["ge"] - 1
    if "gt" in entry:
        yield entry["gt"]
    if "le" in entry:
        yield entry["le"] + 1
    if "lt" in entry:
        yield entry["lt"]
    if entry.get("closed"):
        yield "zzz"


def wrong_arguments(release):
    """Return every flag with each wrong value, and what P2 of the findings of 0.7.0 lists."""
    found = [
        {name: value}
        for name, entry in load_table(release).flags.items()
        if name not in ("shutdown-timeout", "nnodes", "node-rank")
        for value in wrong_values(entry)
    ]
    found += [{"tensor-parallel-size": size} for size in (3, 5, 6, 7)]
    return [*found, {"max-model-len": 1000000}, {"pipeline-parallel-size": 100}, {"dtype": "bfloat61"}]


# What vLLM checks only for models with pictures and videos, and with adapters.
ELSEWHERE = ("mm-", "video-", "max-lora")
# What it checks after its configuration: the loader of the weights.
LATER = {"load-format"}


@pytest.mark.parametrize("release", RELEASES)
def test_a_wrong_value_is_refused_by_the_plan_and_by_vllm(release, shapes, upstream_recipes, real_engines):
    accelerator, accepted = hardware("h200", 8), set()
    base = planned(accelerator, {"recipe": LLAMA}, release, shapes, upstream_recipes)
    for args in wrong_arguments(release):
        ((name, value),) = args.items()
        with pytest.raises(PlanError) as caught:
            planned(accelerator, {"recipe": LLAMA, "args": args}, release, shapes, upstream_recipes)
        assert re.search(rf"{name}\b|more chips requested", str(caught.value)) and "\n" not in str(caught.value)
        argv = [*base["argv"], f"--{name}", str(value)]
        try:
            real_engines[release].judge({**base, "argv": argv, "chips": list(range(8))}, accelerator)
            accepted.add(name)
        except Refused:
            continue
    assert {name for name in accepted if not name.startswith(ELSEWHERE)} == LATER


def words_of(entry):
    """Return the first word of a flag whose words are listed, also in another case; none for other flags."""
    listed = entry["values"] if entry["kind"] == "choice" else entry["known"] if entry.get("closed") else ()
    words = [word for word in map(str, listed) if word.swapcase() != word]
    return (words[0], words[0].swapcase()) if words else ()


@pytest.mark.parametrize(
    "release", [pytest.param(each, marks=[pytest.mark.long] * (each == "0.32.0")) for each in RELEASES]
)
def test_a_word_in_another_case_is_judged_as_vllm_does(release, shapes, upstream_recipes, real_engines):
    """About 90 s with 0.32.0 on two cores, less than 10 s with 0.33.0."""
    accelerator, request = hardware("h200", 8), {"recipe": LLAMA}
    base = planned(accelerator, request, release, shapes, upstream_recipes)

    def plan_refuses(name, word):
        args = {**request, "args": {name: word}}
        return refuses(planned, accelerator, args, release, shapes, upstream_recipes)

    def vllm_refuses(name, word):
        plan = {**base, "argv": [*base["argv"], f"--{name}={word}"], "chips": list(range(8))}
        return refuses(real_engines[release].judge, plan, accelerator)

    judged = {
        name: (vllm_refuses(name, words[1]), plan_refuses(name, words[1]))
        for name, entry in load_table(release).flags.items()
        if (words := words_of(entry)) and not plan_refuses(name, words[0]) and not vllm_refuses(name, words[0])
    }
    assert len(judged) > 40 and {name for name, (engine, plan) in judged.items() if engine != plan} == set()


# Values of each kind that are odd: some engines' flags take them.
ODD = {
    "integer": (-1, 0, "x", 1.5), "number": (-1, 0, "x", 95), "choice": ("zzz",), "json": ("{",), "switch": ("x",),
}  # fmt: skip


def odd_arguments(release):
    """Return every flag with each odd value of its kind."""
    return [{name: value} for name, entry in load_table(release).flags.items() for value in ODD.get(entry["kind"], ())]


def refuses(judge, *words):
    try:
        judge(*words)
    except (PlanError, Refused):
        return True
    return False


def check_odd(release, shapes, recipes, engine, chosen):
    accelerator, request = hardware("h200", 8), {"recipe": LLAMA}
    base, missed = planned(accelerator, request, release, shapes, recipes), []
    for args in chosen:
        ((name, value),) = args.items()
        plan = {**base, "argv": [*base["argv"], f"--{name}={value}"], "chips": list(range(8))}
        if refuses(engine.judge, plan, accelerator) and not refuses(
            planned, accelerator, {**request, "args": args}, release, shapes, recipes
        ):
            missed.append(args)
    assert missed == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_sample_of_odd_values_that_vllm_refuses_is_refused_by_the_plan(
    release, shapes, upstream_recipes, real_engines
):
    chosen = random.Random(release).sample(odd_arguments(release), 40)
    check_odd(release, shapes, upstream_recipes, real_engines[release], chosen)


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_no_odd_value_that_vllm_refuses_is_in_a_plan(release, shapes, upstream_recipes, real_engines):
    check_odd(release, shapes, upstream_recipes, real_engines[release], odd_arguments(release))


# Values that are odd for a key of JSON of most kinds, and which pydantic takes for some.
ODD_KEYS = ("x", 1, "1", "1k", 1.0, "1_0", True, ["x"], [1], {})
# What a key needs beside it.
WITHIN = {
    "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
    "kv-transfer-config": {"kv_connector": "ExampleConnector", "kv_role": "kv_both"},
}
# Keys that vLLM fills in itself, or that no method of WITHIN reads.
UNREAD = re.compile(
    r"speculative-config\.((draft|target)_(model|parallel)_config|kv_cache_dtype|model|quantization|suffix_\w+)\Z"
)
# How pydantic refuses a value by its type. A text may be the short form of a configuration.
TYPED = re.compile(r"\[type=((int|bool|float|string)_(type|parsing|from_float)|list_type|dict_type|literal_error),")


def odd_keys(release):
    """Return each key of JSON flags with each odd value: the key's path, the arguments."""
    found = []
    for flag, entry in load_table(release).flags.items():
        open_ = [((flag, key), of) for key, of in (entry.get("keys") or {}).items()]
        for path, of in open_:
            open_ += [
                ((*path, key), each) for key, each in ((of.get("keys") or {}) if isinstance(of, dict) else {}).items()
            ]
            for value in ODD_KEYS:
                args = {flag: dict(WITHIN.get(flag, {}))}
                inner = args
                for key in path[:-1]:
                    inner = inner.setdefault(key, {})
                inner[path[-1]] = value
                found.append((".".join(path), args))
    return [each for each in found if not UNREAD.search(each[0])]


@pytest.mark.parametrize("release", RELEASES)
def test_keys_of_json_take_what_pydantic_takes(release, shapes, upstream_recipes, real_engines):
    """Both ways: what vLLM refuses by its type is in no plan, and what it accepts is refused by none."""
    accelerator, request = hardware("h200", 8), {"recipe": LLAMA}
    base, differing = planned(accelerator, request, release, shapes, upstream_recipes), []
    for path, args in random.Random(release).sample(odd_keys(release), 400):
        words = [*base["argv"], *to_argv({"model": "m", **args}, load_table(release))[3:]]
        refused = refuses(planned, accelerator, {**request, "args": args}, release, shapes, upstream_recipes)
        try:
            real_engines[release].judge({**base, "argv": words, "chips": list(range(8))}, accelerator)
        except Refused as exc:
            if TYPED.search(str(exc)) and not refused:
                differing.append((path, args, str(exc)))
        else:
            if refused:
                differing.append((path, args, ""))
    assert differing == []


# Settings alone that lack what they need, or exceed another one, each with a value that is valid by itself.
VALUES = {
    "numa-bind-nodes": [0, 0], "spec-tokens": 4, "collect-detailed-traces": ["all"], "spec-method": "ngram",
    "max-loras": 2, "max-cpu-loras": 1, "max-num-active-seqs": 512, "max-num-seqs": 256, "max-num-batched-tokens": 128,
    "long-prefill-token-threshold": 8192, "max-model-len": 4096, "grpc-port": 50051, "data-parallel-rank": 0,
    "offload-num-in-group": 4, "offload-group-size": 2, "mamba-ssu-algorithm": "vertical", "speculative-config": {},
    "speculative-config.prompt_lookup_min": 4, "speculative-config.prompt_lookup_max": 1,
    "kv-transfer-config.kv_connector": "NixlConnector", "ec-transfer-config.ec_connector": "ECExampleConnector",
}  # fmt: skip
# Keys of a JSON flag stand for the whole of it, which must be valid by itself.
ELSEWHERE_TRIED = ("speculative-config.draft_tensor_parallel_size",)
# What else they need.
BESIDE = {
    "max-loras": {"enable-lora": True},
    "speculative-config.prompt_lookup_min": {
        "speculative-config.method": "ngram",
        "speculative-config.num_speculative_tokens": 3,
    },
    "speculative-config.method": {"speculative-config.num_speculative_tokens": 3},
}


def incomplete():
    for group in load_exclusive():
        if "needs" in group or "at_most" in group:
            listed = [each if isinstance(each, dict) else {each: None} for each in group["settings"]]
            wanted = {name: value for each in listed for name, value in each.items()}
            names = [*wanted, *([group["at_most"]] if "at_most" in group else [])]
            pairs = [{name: wanted.get(name) or VALUES.get(name, True) for name in names}]
            for name, value in wanted.items():
                if isinstance(value, list):
                    pairs = [{**pairs[0], name: each} for each in value]
            beside = {} if "ngram" in wanted.values() else BESIDE.get(names[0], {})
            if not {*names} & {*ELSEWHERE_TRIED}:
                yield from (nested({**beside, **pair}) for pair in pairs)


def nested(pairs):
    args = {}
    for name, value in pairs.items():
        flag, _dot, key = name.partition(".")
        if key:
            args.setdefault(flag, {})[key] = value
        else:
            args[flag] = value
    return args


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("args", list(incomplete()), ids="+".join)
def test_a_setting_without_what_it_needs_is_refused_by_the_plan_and_by_vllm(
    args, release, shapes, upstream_recipes, real_engines
):
    accelerator = hardware("h200", 8)
    base = planned(accelerator, {"recipe": LLAMA}, release, shapes, upstream_recipes)
    with pytest.raises(PlanError, match=r"needs |expected at most ") as caught:
        planned(accelerator, {"recipe": LLAMA, "args": args}, release, shapes, upstream_recipes)
    assert "\n" not in str(caught.value)
    words = to_argv({"model": base["model"], **base["args"], **args}, load_table(release))
    with pytest.raises(Refused):
        real_engines[release].judge({**base, "argv": words, "chips": list(range(8))}, accelerator)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("model", ["h200", "mi300x"])
def test_kv_cache_in_the_memory_of_the_host_is_a_configuration(release, model, shapes, upstream_recipes, real_engines):
    accelerator = declared_accelerator(load_catalogue(), model, 8, facts={"cpu": {"memory_mib": 2048 * 1024}})
    for args in ({"tensor-parallel-size": 2}, {"tensor-parallel-size": 1, "data-parallel-size": 2}):
        instance = {"recipe": "openai/gpt-oss-120b", "features": [], "kv_cache": {"host_gib": "auto"}, "args": args}
        plan = planned(accelerator, instance, release, shapes, upstream_recipes)
        assert plan["args"]["kv-offloading-size"] == (204 if "data-parallel-size" not in args else 102)
        real_engines[release].judge(plan, accelerator)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("architecture", sorted(_NO_DRAFTS))
def test_a_model_without_layers_that_draft_is_refused_by_vllm_too(
    architecture, release, shapes, upstream_recipes, real_engines, monkeypatch
):
    accelerator, spec = hardware("h200", 8), {"method": "mtp", "num_speculative_tokens": 1}
    plan = planned(accelerator, {"recipe": LLAMA}, release, shapes, upstream_recipes)
    config = {**SHAPES[LLAMA]["config"], "architectures": [architecture], "model_type": TYPES_OF[architecture]}
    monkeypatch.setitem(SHAPES, LLAMA, {**SHAPES[LLAMA], "config": config})
    real_engines[release].judge(plan, accelerator)
    words = [*plan["argv"], "--speculative-config", json.dumps(spec)]
    with pytest.raises(Refused, match="Unsupported speculative method"):
        real_engines[release].judge({**plan, "argv": words}, accelerator)


def test_a_model_without_layers_that_draft_is_refused_by_the_plan(shapes, upstream_recipes):
    for release in RELEASES:
        with pytest.raises(PlanError, match="LlamaForCausalLM has no layers that draft"):
            args = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}
            planned(hardware("h200", 8), {"recipe": LLAMA, "args": args}, release, shapes, upstream_recipes)


@pytest.mark.parametrize(("model", "backend"), [("h200", "fused"), ("mi300x", "flashkda")])
def test_a_kernel_of_other_chips_is_refused_by_the_plan_and_by_vllm(
    model, backend, shapes, upstream_recipes, real_engines
):
    accelerator, args = hardware(model, 8), {"kda-prefill-backend": backend}
    plan = planned(accelerator, {"recipe": LLAMA}, NEWEST, shapes, upstream_recipes)
    with pytest.raises(PlanError, match=f"--kda-prefill-backend {backend} is not for these chips"):
        planned(accelerator, {"recipe": LLAMA, "args": args}, NEWEST, shapes, upstream_recipes)
    with pytest.raises(Refused, match="is only available on"):
        real_engines[NEWEST].judge({**plan, "argv": [*plan["argv"], "--kda-prefill-backend", backend]}, accelerator)
