# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils._plan import (
    Accelerator,
    PlanError,
    Site,
    check_instance,
    check_memory,
    check_ports,
    plan,
)

CPU = Accelerator(model="cpu", stack="cpu", generation="cpu", vendor="cpu", count=1, memory_mib=24 * 1024)
SITE = Site("1.0", "/srv/models", "/srv/encodings", "/var/cache/vllm", "/opt/vllm", 60)
RELEASE = {
    "vllm": "1.0",
    "supports": ["shutdown-timeout"],
    "stacks": {
        "cpu": {
            "runtime": "venv",
            "requirements": "lock.txt",
            "requirements_sha256": "ab" * 32,
            "env": {"FROM": "stack"},
        }
    },
}
MANIFEST = {"repository": "org/model", "revision": "f" * 40}


def recipe(**sections):
    return {
        "model": {"model_id": "org/model", "base_args": ["--a", "base", "--b", "base"], "base_env": {"E": "base"}},
        "variants": {"default": {"vram_minimum_gb": 4}},
        **sections,
    }


def planned(a_recipe=None, accelerator=CPU, release=None, **wishes):
    wishes = {"recipe": "org/model", **wishes}
    return plan("h1", "chat", accelerator, a_recipe or recipe(), release or RELEASE, MANIFEST, wishes, SITE)


def test_layers_win_in_order():
    a_recipe = recipe(
        variants={"default": {"extra_args": ["--b", "variant", "--c", "variant"]}},
        hardware_overrides={"cpu": {"extra_args": ["--c", "cpu", "--d", "cpu"], "extra_env": {"E": "cpu"}}},
        features={"tools": {"args": ["--d", "feature", "--f", "feature"]}},
    )
    result = planned(a_recipe, args={"f": "site", "a": None})
    assert result.args == {"b": "variant", "c": "cpu", "d": "feature", "f": "site"}
    assert result.env["E"] == "cpu"


def test_preset_stands_between_variant_and_hardware():
    a_recipe = recipe(
        presets={"latency": {"extra_args": ["--b", "preset", "--c", "preset"]}},
        hardware_overrides={"cpu": {"extra_args": ["--c", "cpu"]}},
    )
    assert planned(a_recipe, preset="latency").args == {"a": "base", "b": "preset", "c": "cpu"}


def test_generation_without_a_block_takes_that_of_its_vendor():
    h200 = Accelerator("h200", "cpu", "hopper", "nvidia", 8)
    overrides = {"nvidia": {"extra_args": ["--x", "vendor"]}, "h200": {"extra_args": ["--y", "model"]}}
    assert planned(recipe(hardware_overrides=overrides), h200).args["x"] == "vendor"
    overrides["hopper"] = {"extra_args": ["--x", "generation"]}
    result = planned(recipe(hardware_overrides=overrides), h200)
    assert (result.args["x"], result.args["y"]) == ("generation", "model")


def test_features_that_are_not_opt_in_are_on():
    offered = {"features": {"tools": {"args": ["--tools"]}, "spec": {"args": ["--spec"]}}, "opt_in_features": ["spec"]}
    assert "tools" in planned(recipe(**offered)).args
    assert "spec" not in planned(recipe(**offered)).args
    assert "tools" not in planned(recipe(**offered), features=["spec"]).args


def test_argv_and_config_say_the_same():
    result = planned(host="0.0.0.0", port=8001)
    assert result.argv[:3] == ["vllm", "serve", "/srv/models/org/model/" + "f" * 40]
    assert result.argv[result.argv.index("--port") + 1] == "8001"
    assert result.config["port"] == 8001
    assert result.config["shutdown-timeout"] == 60


def test_release_without_the_option_gets_no_shutdown_timeout():
    assert "shutdown-timeout" not in planned(release={**RELEASE, "supports": []}).config


def test_environment_keeps_vllm_offline_and_its_caches():
    env = planned().env
    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == env["VLLM_NO_USAGE_STATS"] == "1"
    assert env["VLLM_CACHE_ROOT"] == "/var/cache/vllm/chat/vllm"
    assert env["FROM"] == "stack"


def test_it_listens_on_loopback_unless_told_otherwise():
    assert planned().config["host"] == "127.0.0.1"


def test_venv_is_named_after_its_lock():
    result = planned()
    assert result.venv["path"] == "/opt/vllm/1.0-cpu-abababababab"
    assert result.launch == ["/opt/vllm/1.0-cpu-abababababab/bin/vllm", "serve"]


def test_plan_is_plain_data():
    assert json.loads(json.dumps(planned().as_dict()))["host"] == "h1"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"recip": "x"}, "vllm_instances.chat: unknown key 'recip'; nearest: 'recipe'"),
        ({}, "vllm_instances.chat: 'recipe' is missing"),
        ({"recipe": "o/m", "port": "8000"}, "port: found '8000', expected a whole number from 1 to 65535"),
        ({"recipe": "o/m", "port": 70000}, "port: found 70000"),
        ({"recipe": "o/m", "args": ["--x"]}, r"args: found \['--x'\], expected a mapping"),
        ({"recipe": "o/m", "args": {"port": 1}}, "args.port: not set here; it comes from port"),
        ({"recipe": "o/m", "args": {"max_model_len": 1}}, "expected 'max-model-len'"),
        ({"recipe": "o/m", "args": {"--x": 1}}, "expected 'x'"),
        ({"recipe": "o/m", "env": {"VLLM_API_KEY": "hush"}}, "vllm_secrets.chat.VLLM_API_KEY"),
    ],
)
def test_malformed_instance_is_one_sentence(wishes, message):
    with pytest.raises(PlanError, match=message) as caught:
        check_instance("chat", wishes)
    assert "hush" not in str(caught.value)


def test_two_instances_on_one_port_are_both_named():
    with pytest.raises(PlanError, match=r"vllm_instances.b.port: 8000 is the port of vllm_instances.a too"):
        check_ports({"a": {}, "b": {"port": 8000}})


def test_unknown_names_get_the_nearest():
    with pytest.raises(PlanError, match="no variant 'defaul'; nearest: 'default'"):
        planned(variant="defaul")
    with pytest.raises(PlanError, match="has no feature 'tool'; nearest: 'tools'"):
        planned(recipe(features={"tools": {}}), features=["tool"])


def test_stack_that_the_release_does_not_serve():
    h200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8)
    with pytest.raises(PlanError, match=r"vllm_release '1.0' has nothing for stack 'cuda' .* it serves: cpu"):
        planned(accelerator=h200)


def test_malformed_words_name_recipe_and_layer():
    with pytest.raises(PlanError, match=r"recipe org/model, hardware_overrides.cpu: 'word' does not follow a flag"):
        planned(recipe(hardware_overrides={"cpu": {"extra_args": ["word"]}}))


def test_too_little_memory_counts_all_instances():
    small = Accelerator("cpu", "cpu", "cpu", "cpu", 1, 6 * 1024)
    check_memory([planned()], small)
    with pytest.raises(PlanError, match=r"chat 4 GiB.* need 8 GiB, 1 x cpu has 6.0 GiB"):
        check_memory(
            [planned(), plan("h1", "two", CPU, recipe(), RELEASE, MANIFEST, {"recipe": "o/m", "port": 1}, SITE)], small
        )


def test_memory_of_several_chips_is_added_up():
    check_memory([planned()], Accelerator("l4", "cuda", "ada", "nvidia", 2, 2 * 1024))
