# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole catalogue of recipes that vLLM 0.33.0 carries: every file loads, and every plan is read or refused.

The files are used as they are, as a site's vllm_recipe_path. What upstream's own words say to the parser of the very
release that they came with is not always what it takes: WRONG holds those files, with what is wrong in them.
"""

from __future__ import annotations

import collections
import functools
import random
import re
import shlex

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import LIBRARY
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_restrictions,
    load_table,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.restricted_recipes import describe_restricted
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import load_pins, sha256_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.groups import OWN_ENV
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.families import with_family_features
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.parity import seeds
from tests.parity.real import NEWEST, Refused
from tests.parity.reasons import reason

# Upstream's hardware by ours: model, number, memory of one chip.
HARDWARE = {
    "a100": ("a100", 8),
    "h100": ("h100", 8),
    "h200": ("h200", 8),
    "b200": ("b200", 8),
    "b300": ("b300", 8),
    "gb200": ("gb200", 4),
    "gb300": ("gb300", 4),
    "dgx_station_gb300": ("gb300", 1),
    "dgx_spark_gb10": ("gb10", 1),
    "l40s": ("l40s", 8),
    "rtx_5090": ("rtx_5090", 1),
    "rtx_5090_2x": ("rtx_5090", 2),
    "rtx_pro_5000": ("rtx_pro_5000", 1),
    "rtx_pro_6000": ("rtx_pro_6000", 1),
    "rtx_pro_6000_2x": ("rtx_pro_6000", 2),
    "rtx_pro_6000_4x": ("rtx_pro_6000", 4),
    "rtx_pro_6000_8x": ("rtx_pro_6000", 8),
    "mi300x": ("mi300x", 8),
    "mi325x": ("mi325x", 8),
    "mi350x": ("mi350x", 8),
    "mi355x": ("mi355x", 8),
    "arc_pro_b60": ("arc_pro_b60", 4),
    "arc_pro_b70": ("arc_pro_b70", 4),
    "ascend_910c": ("ascend_a3", 16),
    "ascend_950pr": ("ascend_950pr", 1),
    "ascend_950pr_8x": ("ascend_950pr", 8),
    "ascend_950dt": ("ascend_950dt", 1),
    "ascend_950dt_8x": ("ascend_950dt", 8),
    "xeon5": ("cpu", 1),
    "xeon6": ("cpu", 1),
}
# Hardware that this collection does not have: Google's.
FOREIGN = {"ironwood", "trillium"}
RELEASE = f"every-stack-{NEWEST}"
# Files whose words or variables are not those of the release that they came with: part of our sentence. Where it is
# about a flag, the real parser refuses the words too.
WRONG = {
    # Its NVFP4 weights on AMD's chips get both settings.
    "MiniMaxAI/MiniMax-M3": ["--attention-backend and --attention-config.backend exclude each other"],
    "deepseek-ai/DeepSeek-V4-Flash": [
        "env.LD_PRELOAD: found the placeholder $LD_PRELOAD",
        "found the placeholder $IFACE_NAME",
    ],
    "inclusionAI/Ring-1T-FP8": ["--compilation-config.use_inductor: no such key"],
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": ["VLLM_USE_FLASHINFER_MOE_FP4: vLLM 0.33.0 does not read this"],
}
# What a build of a recipe's own may read, and the release's parser does not.
OWN_BUILD = re.compile(r"; the recipe's image \S+ may have it$")
# What a plan over several hosts writes out, and upstream's builder leaves to vLLM's defaults.
WRITTEN_OUT = {
    "multi_node_dep": {"data-parallel-rpc-port": 29550, "data-parallel-start-rank": 0},
    **{
        strategy: {"distributed-executor-backend": "mp", "master-port": 29501}
        for strategy in ("multi_node_tp", "multi_node_tep", "multi_node_tp_pp")
    },
}
SAMPLES = yaml.safe_load((seeds.HERE / "sample_words.yml").read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=None)
def hardware(name):
    model, count = HARDWARE[name]
    memory = 1024 if model == "cpu" else None
    return declared_accelerator(load_catalogue(), model, count, memory_gib=memory)


@pytest.fixture(scope="module")
def recipes(upstream_recipes):
    """Every file by the name that people write."""
    return {str(path.relative_to(upstream_recipes).with_suffix("")): path for path in upstream_recipes.rglob("*.yaml")}


def test_every_file_loads(recipes, upstream_recipes):
    assert len(recipes) == 188
    for name in recipes:
        assert load_recipe(name, [str(upstream_recipes)])["model"]["model_id"], name


def test_only_ten_recipes_set_what_the_instance_has_to_allow(recipes, upstream_recipes):
    found = describe_restricted(upstream_recipes, sorted(recipes), load_table(NEWEST), load_restrictions())
    assert len(found) == 10, found
    assert "Ten of vLLM's 188 recipes" in (seeds.HERE.parents[1] / "docs/operate/serve-another-model.md").read_text()


def test_all_hardware_that_a_file_names_is_known_here(recipes, upstream_recipes):
    named = {
        name
        for recipe in recipes
        for name in load_recipe(recipe, [str(upstream_recipes)])["meta"].get("hardware") or {}
    }
    assert named - set(HARDWARE) == FOREIGN


def planned(name, hw, instance, directory, **more):
    """Return the plan of one instance. Raises PlanError."""
    multi = {"nodes": ["host", "other"]} if "multi" in instance.get("strategy", "") else {}
    requested = {"recipe": name, **instance, **multi}
    return plan_host("host", hardware(hw), seeds.settings(RELEASE, requested, recipe_path=[str(directory)], **more))[
        "chat"
    ]


def combinations(recipe):
    """Yield each hardware that a recipe names and we have, with each variant and strategy."""
    for hw in recipe["meta"].get("hardware") or {}:
        for variant in recipe.get("variants") or {} if hw in HARDWARE else ():
            for strategy in recipe.get("compatible_strategies") or ["single_node_tp"]:
                yield hw, {"variant": variant, "strategy": strategy}


def some(name, cases, share):
    """Return a sample of the cases of a recipe, all of one with wrong words."""
    if share == 1 or name in WRONG:
        return cases
    return random.Random(name).sample(cases, -(-len(cases) // share))


# One of how many cases of a recipe; all of them in make long.
@pytest.mark.parametrize("share", [12, pytest.param(1, marks=pytest.mark.long)])
def test_every_plan_is_read_by_the_real_parser_or_refused_with_a_reason(share, recipes, upstream_recipes, real_parsers):
    parser = real_parsers[NEWEST]
    counted, wrong, problems = collections.Counter(), collections.defaultdict(set), []
    for name in sorted(recipes):
        recipe = load_recipe(name, [str(upstream_recipes)])
        for hw, instance in some(name, [*combinations(recipe)], share):
            try:
                plan = planned(name, hw, instance, upstream_recipes)
            except PlanError as exc:
                known = [part for part in WRONG.get(name, ()) if part in str(exc)]
                wrong[name].update(known)
                counted[reason(exc, recipe) or "wrong"] += 1
                if not reason(exc, recipe) and not known:
                    problems.append(f"{name} {hw} {instance}: {exc}")
                continue
            if any(OWN_BUILD.search(text) for text in plan["warnings"]):
                counted["own build"] += 1
                continue
            try:
                counted["read"] += 1
                if parser.read(seeds.words_of(plan)) != parser.read(["vllm", "serve"], seeds.plan_config(plan)):
                    problems.append(f"{name} {hw} {instance}: command and file differ")
            except Refused as exc:
                problems.append(f"{name} {hw} {instance}: the parser says {exc}")
    assert not problems, "\n".join(problems[:20])
    assert {name: sorted(found) for name, found in wrong.items() if found} == WRONG
    assert counted["read"] > 5000 / share
    assert counted["own build"]


# The engine, not its parser, refuses what excludes each other (test_engine.py).
@pytest.mark.parametrize("name", [name for name, parts in WRONG.items() if re.match("--.*: no such", parts[0])])
def test_words_that_we_refuse_the_real_parser_refuses_too(name, upstream_recipes, real_parsers):
    recipe = load_recipe(name, [str(upstream_recipes)])
    refused = 0
    for hw, instance in combinations(recipe):
        try:
            planned(name, hw, instance, upstream_recipes)
        except PlanError as exc:
            if WRONG[name][0] not in str(exc):
                continue
            try:
                plan = planned(name, hw, instance, upstream_recipes, strict=False)
            except PlanError as other:
                assert reason(other)
                continue
            with pytest.raises(Refused):
                real_parsers[NEWEST].read(plan["argv"])
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("name", "sample", "hw"),
    [
        pytest.param(name, sample, hw, id=f"{name}-{hw}-{sample['variant']}-{sample['strategy']}")
        for name, samples in SAMPLES.items()
        for sample in samples
        for hw in sample["hardware"]
    ],
)
def test_the_six_sample_recipes_give_upstreams_words_in_upstreams_order(name, sample, hw, upstream_recipes):
    table = load_table(NEWEST)
    instance = {"variant": sample["variant"], "strategy": sample["strategy"]}
    plan = planned(name, hw, instance, upstream_recipes)
    expected = seeds.canonical(["vllm", "serve", sample["model"], *shlex.split(sample["words"])], table)
    found = seeds.canonical(seeds.words_of(plan), table)
    for key, value in WRITTEN_OUT.get(sample["strategy"], {}).items():
        assert found.pop(key) == value
    found = with_upstreams_size(plan, found, expected)
    assert found == expected
    assert list(found) == list(expected)
    assert plan["model"] == sample["model"]
    # A host's place in its group is no part of a recipe.
    theirs = sample.get("env") or {}
    own = seeds.own_variables(plan, theirs)
    assert {key: value for key, value in own.items() if "group" not in plan or key not in OWN_ENV} == theirs


def with_upstreams_size(plan, found, expected):
    """Return the words of a plan with upstream's size, where ours is smaller because fewer chips hold the model.

    Upstream's builder takes all chips where one does not hold it. Chat templates are where the role installs them.
    """
    size, template = "tensor-parallel-size", "chat-template"
    if template in found:
        found = {**found, template: found[template].replace(f"{LIBRARY}/", "examples/")}
    reasons = {entry["key"]: entry["because"] for entry in plan["explain"]}
    if found.get(size) == expected.get(size) or reasons.get(size) != "the smallest size that holds the model":
        return found
    if found.get(size, 1) > expected.get(size, 1):
        # The number that the recipe names for all hardware is too few for what it says that the model needs.
        return found
    return {**found, size: expected[size]}


def parser_of(recipe, feature, flag):
    """Return whether a recipe that writes text has a parser: on, requested or none; empty for other models."""
    tasks = {*((recipe["meta"].get("tasks")) or ())}
    if not tasks & {"text", "multimodal", "omni"} or "embedding" in tasks:
        return ""
    words = [str(word).partition("=")[0].replace("_", "-") for word in recipe["model"].get("base_args") or []]
    if feature in (recipe.get("features") or {}) or flag in words:
        return "requested" if feature in (recipe.get("opt_in_features") or []) else "on"
    return "requested" if feature in (with_family_features(recipe).get("features") or {}) else "none"


def test_the_page_lists_the_models_without_a_parser_of_tool_calls(recipes, upstream_recipes):
    found = collections.defaultdict(set)
    for name in recipes:
        recipe = load_recipe(name, [str(upstream_recipes)])
        found[parser_of(recipe, "tool_calling", "--tool-call-parser")].add(name.rpartition("/")[2])
        found["reasoning", parser_of(recipe, "reasoning", "--reasoning-parser")].add(name)
    page = (seeds.HERE.parents[1] / "docs/reference/recipes.md").read_text(encoding="utf-8")
    text = " ".join(page.split()).partition("have no parser of tool calls.")[2].partition(" ## ")[0]
    groups = [group.partition(": ")[2] for group in text.split(" - ")[1:]]
    assert {name for group in groups for name in group.split(", ")} == found["none"]
    counts = (len(found["on"]), len(found["on"] | found["requested"] | found["none"]), len(found["reasoning", "on"]))
    assert "for tool calls in {} of the {} recipes of models that write text, for reasoning in {}.".format(
        *counts
    ) in " ".join(page.split())


def test_the_pins_are_those_of_the_files(recipes):
    pinned = load_pins(NEWEST).recipes
    assert pinned == {name: sha256_of(path.read_bytes()) for name, path in recipes.items()}
