# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that only the plan can set, and arguments with which nobody answers at the port."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.plans import H200, MI300X, RELEASE, plan, plans, recipe, refusal


@pytest.mark.parametrize(
    ("env", "accelerator", "message"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, H200, "because the plan gives the instance its chips; name them in vllm_insta"),
        ({"HIP_VISIBLE_DEVICES": "0"}, MI300X, "vllm_instances.chat.env.HIP_VISIBLE_DEVICES: found '0', expected"),
        ({"NVIDIA_VISIBLE_DEVICES": "0"}, H200, "found '0', expected none, because the plan gives the instance its ch"),
        (
            {"GPU_DEVICE_ORDINAL": "0"},
            MI300X,
            "found '0', expected none, because the plan gives the instance its chips",
        ),
        ({"VLLM_DP_SIZE": "4"}, H200, "because it would change how many chips vLLM uses; set vllm_instances.chat.args"),
        # Of a site's own catalogue.
        (
            {"MY_CHIPS": "0"},
            replace(H200, visible_env="MY_CHIPS"),
            "vllm_instances.chat.env.MY_CHIPS: found '0', expect",
        ),
        ({"HOME": None}, H200, "vllm_instances.chat.env.HOME: found nothing, expected '/var/cache/vllm/chat'"),
        ({"GATEWAY_SECRET": "x" * 32}, H200, "because this collection's middleware reads it"),
        ({"PREFILL_HOSTS": "10.0.0.9"}, H200, "because this collection's middleware reads it"),
        (
            {"RESIDENTS": "pool"},
            H200,
            "because it follows from another key; name the instances that share chips in vllm_",
        ),
        ({"AVAILABILITY_DIRECTORY": "/tmp"}, H200, "because this collection's middleware reads it"),
    ],
)
def test_an_instance_cannot_set_what_the_plan_computes(env, accelerator, message):
    assert message in refusal({"env": env}, accelerator, site={"strict": False})


UNANSWERED = {
    "api-server-count": -1, "data-parallel-multi-port-external-lb": True, "grpc": True, "headless": True,
    "uds": "/run/x",
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), UNANSWERED.items())
def test_an_instance_answers_at_its_port(name, value):
    for values in [value, 0, "0"] if name == "api-server-count" else [value]:
        said = refusal({"args": {name: values}}, site={"strict": False})
        assert said.startswith(f"vllm_instances.chat.args.{name}: found ") and "nobody answers at the port" in said


def test_nor_does_a_recipe_end_its_answers():
    """vLLM takes the number, and then starts without an API server."""
    assert "remove it, or a recipe's with the value null" in refusal(
        a_recipe=recipe(model={"base_args": ["--api-server-count", "0"]})
    )
    assert plan({"args": {"api-server-count": 2}}).args["api-server-count"] == 2


def test_the_same_value_and_a_place_in_the_own_cache_are_accepted():
    found = plan({"env": {"HOME": "/var/cache/vllm/chat", "HF_HOME": "/var/cache/vllm/chat/hub"}, "replicas": 1})
    assert found.env["HF_HOME"] == "/var/cache/vllm/chat/hub" and not any(
        "HOME: found" in text for text in found.warnings
    )


def test_the_hosts_of_a_group_have_their_addresses():
    spanning = {"nodes": ["h1", "h2"], "env": {"VLLM_HOST_IP": "10.9.9.9"}}
    multi = recipe(compatible_strategies=["multi_node_tp"])
    message = refusal(spanning, a_recipe=multi, site={"strict": False})
    assert "vllm_instances.chat.env.VLLM_HOST_IP: found '10.9.9.9', expected '10.0.0.1'" in message


def test_a_recipe_s_value_has_no_effect_and_the_plan_says_so():
    setting = recipe(model={"base_env": {"HIP_VISIBLE_DEVICES": "0"}})
    found = plans({"chat": {"recipe": "org/model"}}, MI300X, setting)
    assert [one.env["HIP_VISIBLE_DEVICES"] for one in found] == ["0,1", "2,3", "4,5", "6,7"]
    assert any("the recipe's HIP_VISIBLE_DEVICES ('0') has no effect" in text for text in found[0].warnings)
    whole = plan({"args": {"tensor-parallel-size": 8}}, MI300X, setting)
    assert "HIP_VISIBLE_DEVICES" not in whole.env


def test_another_cache_counts_and_the_plan_warns():
    found = plan({"env": {"HF_HOME": "/srv/hub"}})
    assert found.env["HF_HOME"] == "/srv/hub"
    assert (
        "vllm_instances.chat.env.HF_HOME: found '/srv/hub', expected '/var/cache/vllm/chat/huggingface', because vLLM "
        "can write there only, and only that is kept"
    ) in found.warnings


@pytest.mark.parametrize(
    "name", ["HF_HUB_CACHE", "TRANSFORMERS_CACHE", "DG_JIT_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"]
)
def test_a_cache_that_the_plan_does_not_place_is_kept_in_the_directory_of_the_instance_only(name):
    found = plan({"env": {name: "/srv/hub"}})
    expected = "found '/srv/hub', expected '/var/cache/vllm/chat', because vLLM can write there only"
    assert found.env[name] == "/srv/hub" and any(f"{name}: {expected}" in text for text in found.warnings)
    assert not any(
        expected in text for value in ("/var/cache/vllm/chat/x", "1") for text in plan({"env": {name: value}}).warnings
    )


def test_an_address_or_a_name_of_a_recipe_has_no_effect_and_the_plan_says_so():
    found = plan(a_recipe=recipe(model={"base_args": ["--port", "9000", "--served-model-name", "x"]}))
    assert found.listen["port"] == 8000 and found.served_model_names == ["org/model"]
    assert "vllm_instances.chat: the recipe's --port has no effect; the instance's port counts" in found.warnings
    assert any(
        "--served-model-name has no effect; the instance's served_model_names" in text for text in found.warnings
    )


def test_an_instance_beside_other_gpus_cannot_change_their_order():
    mixed = replace(H200, numbers=tuple(range(1, 9)))
    release = {**RELEASE, "stacks": {"cuda": {**RELEASE["stacks"]["cpu"], "minimum_driver": "1"}}}
    words = refusal({"env": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}}, accelerator=mixed, release=release)
    assert words.startswith("vllm_instances.chat.env.CUDA_DEVICE_ORDER: found 'FASTEST_FIRST', expected")
    assert "CUDA_DEVICE_ORDER" in plan({"env": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}}).env
    # A container sees its own chips only.
    assert (
        plan({"env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}, accelerator=mixed).env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    )
