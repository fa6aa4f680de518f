# SPDX-License-Identifier: GPL-3.0-or-later
"""Upstream's command builder beside ours: for the same recipe, hardware and variant both set the same.

The builder is a file of vLLM's repository of recipes. It is fetched at a pinned commit into .cache, never committed.
VLLM_RECIPES_GIT names another place of that repository. Without it or without node, the test is skipped.
"""

from __future__ import annotations

import collections
import json
import math
import os
import shlex
import shutil
import subprocess

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.checks import FRONTEND
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.divisions import size_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.own_place import VISIBLE

from tests.parity import seeds
from tests.parity.real import NEWEST
from tests.parity.test_upstream_recipes import HARDWARE, WRONG, planned, with_upstreams_size
from tools.vllm.fetch_vllm_release import CACHE

pytestmark = pytest.mark.long

REPOSITORY = os.environ.get("VLLM_RECIPES_GIT", "https://github.com/vllm-project/recipes")
COMMIT = "8959cf64189c71d36e11c6a30335f923f261b1f7"
# Where the two differ, by recipe and hardware, and why.
KNOWN = {
    # A feature's arguments for one chip, which upstream's builder looks up by generation only.
    ("Google/gemma-4-26B-A4B-it", "dgx_spark_gb10"),
    # strategy_overrides.single_node_tep.tp, which upstream's builder reads for single_node_tp only.
    ("IFM/Jais-3-MoVA-36B-A4B", "h200"),
    ("IFM/K2-Horizon-MoVA-36B-A4B", "h200"),
    # The block for one card: the model takes one of the two, and upstream reads only rtx_5090_2x.
    ("Qwen/Qwen3.8-27B", "rtx_5090_2x"),
    # One chip by the recipe's strategy, two by the memory that it says the model needs.
    ("MiniMaxAI/MiniMax-M3.1-Flash", "gb300"),
    # A feature's variables for AMD's chips, of which upstream's builder reads the arguments only.
    ("meta-models/Muse-Spark-Open-816B-A42B", "mi350x"),
    ("meta-models/Muse-Spark-Open-816B-A42B", "mi355x"),
}
# Hardware that recipes name and upstream's list lacks at this commit: brand, generation, and the memory of one chip in
# GB, as the profiles of its nearest relatives there give them. Without a profile its builder would count one chip.
UNLISTED = {
    "ascend_910c": ("Huawei", "npu", 64),
    "ascend_950pr_8x": ("Huawei", "npu", 128),
    "l40s": ("NVIDIA", "ada", 48),
    "mi350x": ("AMD", "amd", 288),
    "rtx_pro_6000_4x": ("NVIDIA", "blackwell", 96),
}
STRATEGIES = ("single_node_tp", "single_node_tep", "single_node_dep")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """The directory with the builder, the strategies and the hardware of upstream's repository."""
    if not shutil.which("node"):
        pytest.skip("no node, which runs upstream's builder")
    directory = CACHE / "recipes.git"
    if not directory.exists():
        scratch = tmp_path_factory.mktemp("git")
        for words in (["init", "-q", "--bare"], ["fetch", "-q", "--depth", "1", REPOSITORY, COMMIT]):
            done = subprocess.run(["git", *words], cwd=scratch, check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"upstream's repository cannot be fetched here: {done.stderr[-300:]}")
        shutil.move(scratch, directory)
    target = tmp_path_factory.mktemp("builder")
    wanted = ["src/lib/command-synthesis.js", "strategies", "taxonomy.yaml"]
    archive = subprocess.run(["git", "archive", COMMIT, *wanted], cwd=directory, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", target], input=archive, check=True)
    (target / "builder.mjs").write_bytes((target / "src/lib/command-synthesis.js").read_bytes())
    return target


def features_of(recipe, variant, hardware):
    """Return the features that upstream's page has on at first."""
    off = {
        *(recipe.get("opt_in_features") or []),
        *((recipe.get("hardware_opt_in_features") or {}).get(hardware) or []),
    }
    on = (recipe["variants"][variant] or {}).get("default_modes") or {}
    return [name for name in recipe.get("features") or {} if name not in off or name in on]


def add_unlisted(taxonomy):
    """Add a profile for each hardware that the list lacks; one that it has since got stays as it is."""
    for name, (brand, generation, memory) in UNLISTED.items():
        count = HARDWARE[name][1]
        profile = {"brand": brand, "generation": generation, "gpu_count": count, "vram_gb": memory * count}
        taxonomy["hardware_profiles"].setdefault(name, profile)


def same_hardware(taxonomy):
    """Return the hardware that both have, with the same number of chips; a number of CPUs has no meaning upstream."""
    profiles = taxonomy["hardware_profiles"]
    return [
        name
        for name, (model, count) in HARDWARE.items()
        if model == "cpu" or profiles.get(name, {}).get("gpu_count") == count
    ]


def cases_of(recipes, chips):
    """Yield each of the chips that a recipe names, with its variants and strategies of one host."""
    for name, recipe in recipes.items():
        for hardware in (chip for chip in chips if chip in (recipe["meta"].get("hardware") or {})):
            for variant in recipe.get("variants") or {}:
                # Over several chips of a CPU, upstream's builder counts four; a host here is one.
                possible = STRATEGIES[:1] if HARDWARE[hardware][0] == "cpu" else STRATEGIES
                for strategy in set(possible) & {*(recipe.get("compatible_strategies") or ())}:
                    features = features_of(recipe, variant, hardware)
                    yield {"recipe": name, "variant": variant, "strategy": strategy, "hardware": hardware} | {
                        "features": features
                    }


def built(upstream, taxonomy, recipes, cases):
    """Return command and variables of each case as upstream's builder writes them."""
    data = {"recipes": recipes, "cases": cases, "taxonomy": taxonomy}
    data["strategies"] = {path.stem: yaml.safe_load(path.read_text()) for path in upstream.glob("strategies/*.yaml")}
    (upstream / "in.json").write_text(json.dumps(data, default=str))
    script = seeds.HERE / "upstream_builder.mjs"
    words = ["node", script, upstream / "builder.mjs", upstream / "in.json", upstream / "out.json"]
    subprocess.run([str(word) for word in words], check=True)
    return json.loads((upstream / "out.json").read_text())


def texts(variables):
    """Return variables without those of chips and of the frontend: the plan warns of a recipe that sets them."""
    ours = {FRONTEND, *(name for names in VISIBLE.values() for name in names)}
    return {name: str(value) for name, value in (variables or {}).items() if name not in ours}


def test_both_builders_set_the_same(upstream, upstream_recipes):
    paths = {str(path.relative_to(upstream_recipes).with_suffix("")): path for path in upstream_recipes.rglob("*.yaml")}
    recipes = {name: yaml.safe_load(path.read_text()) for name, path in sorted(paths.items()) if name not in WRONG}
    taxonomy = yaml.safe_load((upstream / "taxonomy.yaml").read_text())
    add_unlisted(taxonomy)
    table, cases = load_table(NEWEST), list(cases_of(recipes, same_hardware(taxonomy)))
    counted, compared, problems, known = collections.Counter(), collections.Counter(), [], set()
    for case, theirs in zip(cases, built(upstream, taxonomy, recipes, cases)):
        instance = {"variant": case["variant"], "strategy": case["strategy"]}
        try:
            plan = planned(case["recipe"], case["hardware"], instance, upstream_recipes)
        except PlanError:
            # test_upstream_recipes.py judges the reasons. Upstream's builder has none: its page hides such choices.
            counted["refused"] += 1
            continue
        counted["compared"] += 1
        compared[case["hardware"]] += 1
        expected = seeds.canonical(shlex.split(theirs["command"].replace("\\\n", " ")), table)
        found = with_upstreams_size(plan, seeds.canonical(seeds.words_of(plan), table), expected)
        place = (case["recipe"], case["hardware"])
        own = seeds.own_variables(plan, theirs["env"])
        same = found == expected and texts(theirs["env"]) == texts(own)
        if not same and place in KNOWN:
            known.add(place)
            continue
        if found != expected:
            differing = {name for name in {*found, *expected} if found.get(name) != expected.get(name)}
            problems.append(f"{case}: {[(name, expected.get(name), found.get(name)) for name in sorted(differing)]}")
        taken = math.prod(size_of(plan["args"], f"{part}-parallel-size") for part in ("tensor", "pipeline", "data"))
        if plan["chips"] and taken != len(plan["chips"]):
            problems.append(f"{case}: {len(plan['chips'])} chips for arguments that take {taken}")
        if texts(theirs["env"]) != texts(own):
            problems.append(f"{case}: {theirs['env']} is not {own}")
    assert not problems, f"{counted}, {len(problems)} differ:\n" + "\n".join(problems[:20])
    assert known == KNOWN
    assert counted["compared"] > 2000, counted
    assert set(compared) >= {*UNLISTED, "ascend_950pr", "xeon6"}, compared
