# SPDX-License-Identifier: GPL-3.0-or-later
"""Every strategy over several hosts, on each of them: the real parser makes the same of command and file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.members import expand
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.strategies import MULTI_NODE

from tests.parity import seeds

RECIPE = "openai/gpt-oss-120b"
NODES = ["host", "other"]
EVERY_STACK = sorted(path.stem for path in seeds.RELEASES.glob("*.yml"))


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """A directory with a recipe that lists every strategy."""
    (source,) = (Path(__file__).resolve().parents[2] / "catalog/recipes/openai").glob("gpt-oss-120b.y*ml")
    recipe = yaml.safe_load(source.read_text())
    recipe["compatible_strategies"] = ["single_node_tp", *MULTI_NODE]
    target = tmp_path_factory.mktemp("recipes") / "openai"
    target.mkdir()
    (target / "gpt-oss-120b.yml").write_text(yaml.safe_dump(recipe))
    return target.parent


@pytest.mark.parametrize("model", ["h200", "mi300x"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("strategy", MULTI_NODE)
@pytest.mark.parametrize("release", EVERY_STACK)
def test_every_strategy_and_rank_is_read_as_command_and_as_file(release, strategy, rank, model, recipes, real_parsers):
    # The parser leaves out what is vLLM's default anyway.
    instance = {"recipe": RECIPE, "nodes": NODES, "strategy": strategy, "host": "10.0.0.1", "group_port": 29600}
    settings = {**seeds.SITE, "release_path": [str(seeds.RELEASES)], "recipe_path": [str(recipes)]}
    accelerator = declared_accelerator(load_catalogue(), model, 8)
    given = {**settings, "instances": {"big": instance}, "release": release}
    plan = plan_host(NODES[rank], accelerator, given)["big"]
    parser = real_parsers[plan["vllm_version"]]
    found = parser.read(seeds.words_of(plan))
    assert parser.read(["vllm", "serve"], seeds.plan_config(plan)) == found
    assert found.get("headless", False) is (plan["group"]["role"] == "worker")
    meeting = "master_port" if "nnodes" in plan["args"] else "data_parallel_rpc_port"
    assert found[meeting] == plan["group"]["port"] == 29600


@pytest.mark.parametrize(("host", "role"), [("host", "kv_consumer"), ("other", "kv_producer")])
@pytest.mark.parametrize("release", EVERY_STACK)
def test_both_sides_of_prefill_and_decode_are_read_as_command_and_as_file(release, host, role, recipes, real_parsers):
    instance = {"recipe": RECIPE, "decode": ["host"], "prefill": ["other"], "host": "10.0.0.1"}
    settings = {**seeds.SITE, "release_path": [str(seeds.RELEASES)], "recipe_path": [str(recipes)]}
    given = {**settings, "instances": expand({"big": instance}, {"all": NODES}), "release": release}
    plan = plan_host(host, declared_accelerator(load_catalogue(), "h200", 8), given)["big"]
    parser = real_parsers[plan["vllm_version"]]
    as_command, as_file = parser.read(seeds.words_of(plan)), parser.read(["vllm", "serve"], seeds.plan_config(plan))
    for found in (as_command, as_file):
        # vLLM makes one up for each process.
        assert found["kv_transfer_config"].pop("engine_id")
    assert as_command == as_file
    assert as_file["kv_transfer_config"]["kv_role"] == role
