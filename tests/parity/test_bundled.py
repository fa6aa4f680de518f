# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundled recipes x accelerators x releases x presets x features: every plan is one that its vLLM reads, or refused.

Where the real parser of the release is here it reads the command and the config file, and makes the same of both;
else the release's table has every flag. In CI all requests meet the newest release, and every fourth the older ones;
all meet all of them in make long.
"""

from __future__ import annotations

import collections
import random
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe, load_release
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

from tests.parity import seeds
from tests.parity.reasons import reason

CATALOG = Path(__file__).resolve().parents[2] / "catalog"
RECIPES = sorted(
    str(path.relative_to(CATALOG / "recipes").with_suffix("")) for path in (CATALOG / "recipes").rglob("*.y*ml")
)
EVERY_STACK = sorted(path.stem for path in seeds.RELEASES.glob("*.yml"))
BUNDLED = sorted(path.stem for path in (CATALOG / "releases").glob("*.yml"))
# Those that the recipes were written for; others get every preset, variant, strategy and mode with default features.
NAMED = (
    "a100", "ascend_a2", "ascend_a3", "b200", "b300", "cpu", "gb200", "h100", "h200", "mi300x", "mi325x", "mi350x",
    "mi355x", "r9700",
)  # fmt: skip
MODELS = sorted({*(name for name, entry in load_catalogue().models.items() if not entry.unsupported), "cpu"})
# One of how many requests meets an older release.
SHARES = [12, pytest.param(1, marks=pytest.mark.long)]
NODES = ["host", "other"]
SITE = {**seeds.SITE, "drain_timeout": 30, "release_path": [str(seeds.RELEASES)]}


def hardware(model):
    catalogue = load_catalogue()
    if model == "cpu":
        return declared_accelerator(catalogue, model, 1, memory_gib=256)
    count = 16 if model == "ascend_a3" else 4 if model.startswith("gb") else 8
    return declared_accelerator(catalogue, model, count)


def requests_of(name, recipe, model):
    """Yield what people may ask for: each variant, each strategy, each preset with each feature."""
    features = list(recipe.get("features") or {})
    presets = [None, *(recipe.get("presets") or {})]
    sets = [None, [], *([feature] for feature in features), features]
    for preset in presets:
        for chosen in sets:
            if model in NAMED or chosen is None:
                yield request_of(name, preset=preset, features=chosen)
    for variant in recipe.get("variants") or {}:
        yield request_of(name, variant=variant)
    for strategy in recipe.get("compatible_strategies") or []:
        yield request_of(name, strategy=strategy, nodes=NODES if strategy.startswith("multi_node") else None)
    for feature in features:
        for mode in recipe["features"][feature].get("modes") or {}:
            yield request_of(name, features=[feature], feature_modes={feature: mode})


def request_of(name, **keys):
    return {"recipe": name, **{key: value for key, value in keys.items() if value is not None}}


def chosen(requests, release, releases, share, seed):
    """Return all requests for the newest release, a sample of them for an older one."""
    if share == 1 or release == releases[-1]:
        return requests
    return random.Random(seed + release).sample(requests, -(-len(requests) // share))


def plans(name, model, release, counted, share=1, releases=()):
    """Yield the plans of the chosen requests on each of their hosts; count the refusals by their kind."""
    recipe, accelerator = load_recipe(name), hardware(model)
    if accelerator.stack not in load_release(release, [str(seeds.RELEASES)])["stacks"]:
        counted["stack"] += 1
        return
    for instance in chosen([*requests_of(name, recipe, model)], release, releases, share, name + model):
        settings = {**SITE, "instances": {"chat": instance}, "release": release}
        try:
            found = [plan_host(host, accelerator, settings)["chat"] for host in instance.get("nodes", NODES[:1])]
        except PlanError as exc:
            kind = reason(exc, recipe)
            assert kind, f"{instance} on {model} in {release}: {exc}"
            counted[kind] += 1
            continue
        yield from found


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", RECIPES)
def test_every_plan_is_in_its_release_s_table(name, model, share):
    refused = collections.Counter()
    for release in BUNDLED:
        for plan in plans(name, model, release, refused, share, BUNDLED):
            seeds.canonical(seeds.words_of(plan), load_table(plan["vllm_version"]))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("release", EVERY_STACK)
@pytest.mark.parametrize("name", RECIPES)
def test_every_plan_passes_the_real_parser_as_command_and_as_file(name, release, model, share, real_parsers):
    refused = collections.Counter()
    for plan in plans(name, model, release, refused, share, EVERY_STACK):
        parser = real_parsers[plan["vllm_version"]]
        argv = parser.read(seeds.words_of(plan))
        assert parser.read(["vllm", "serve"], seeds.plan_config(plan)) == argv


@pytest.mark.parametrize("model", NAMED)
def test_hardware_that_the_recipes_name_can_serve_one_of_them_today(model):
    assert any(
        plan for name in RECIPES for release in BUNDLED for plan in plans(name, model, release, collections.Counter())
    )
