# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables and mounts of an instance, in whole plans without a catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.compose import Composed
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.environment import mounts_of

from tests.fakes import plans as fakes
from tests.fakes.plans import A3, H200, RELEASE, SITE, plan, recipe

CPU = replace(fakes.CPU, memory_mib=1 << 20)
MODULE = {**RELEASE, "stacks": {**RELEASE["stacks"], "cpu": {**RELEASE["stacks"]["cpu"], "entrypoint": "module"}}}
CACHE = f"{SITE.cache_root}/chat"


def env(accelerator=H200, **more):
    return plan(None, accelerator, **more).env


def test_a_container_has_a_user_and_bytecode_of_its_own_and_an_environment_has_neither():
    container, venv = env(), env(CPU)
    assert container["USER"] == "vllm" and container["HOME"] == CACHE
    assert container["PYTHONPYCACHEPREFIX"] == f"{CACHE}/pycache"
    assert venv["HOME"] == CACHE and not {"USER", "PYTHONPYCACHEPREFIX"} & set(venv)


def test_an_image_that_serves_as_root_keeps_its_home():
    found = env(A3)
    assert found["XDG_CACHE_HOME"] == CACHE and not {"HOME", "USER"} & set(found)


@pytest.mark.parametrize("name", ["HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT"])
def test_caches_are_below_that_of_the_instance(name):
    assert env()[name].startswith(f"{CACHE}/")


def test_no_instance_asks_the_internet_and_a_site_may_change_that():
    assert {
        env()[name] for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "DO_NOT_TRACK", "VLLM_NO_USAGE_STATS")
    } == {"1"}
    assert plan({"env": {"HF_HUB_OFFLINE": "0"}}, H200).env["HF_HUB_OFFLINE"] == "0"


def test_a_variable_of_a_release_is_left_out_on_chips_that_it_stops():
    stack = {**RELEASE["stacks"]["cuda"], "container_env": {"A": "1", "B": "2"}, "env_not_on": {"A": ["gb10"]}}
    release = {**RELEASE, "stacks": {**RELEASE["stacks"], "cuda": stack}}
    assert {"A": "1", "B": "2"}.items() <= plan(None, H200, release=release).env.items()
    found = plan(None, replace(H200, model="gb10", count=1), release=release).env
    assert "A" not in found and found["B"] == "2"


def test_python_finds_the_middleware_first_then_what_the_site_names_then_a_missing_version():
    path = plan({"env": {"PYTHONPATH": "/opt/mine"}}, CPU, release=MODULE).env["PYTHONPATH"].split(":")
    assert path[:2] == ["/usr/local/lib/vllm", "/opt/mine"] and len(path) == 3
    assert env(CPU)["PYTHONPATH"] == "/usr/local/lib/vllm"


@pytest.mark.parametrize(
    ("model", "args", "needed"),
    [
        ("org/model", {}, False), ("openai/GPT-OSS-20b", {}, True), ("org/model", {"tool-call-parser": "openai"}, True),
        ("org/model", {"tool-call-parser": "hermes"}, False),
    ],
)  # fmt: skip
def test_the_vocabulary_of_gpt_oss_is_there_for_its_models_and_its_parsers(model, args, needed):
    found = plan({"args": args}, H200, recipe(model={"model_id": model})).env
    assert (found.get("TIKTOKEN_ENCODINGS_BASE") == SITE.encodings_dir) == needed


def test_inputs_are_mounted_once_read_only_and_the_cache_is_writable():
    composed = Composed({}, {"TIKTOKEN_ENCODINGS_BASE": "/srv/e"}, {})
    found = mounts_of("chat", "/srv/w/m", composed, replace(H200, mounts=("/dev/shm/x", "/srv/w/m")), SITE)
    config = f"{SITE.config_dir}/chat.yaml"
    assert found == [
        *(f"{path}:{path}:ro" for path in ("/srv/w/m", "/srv/e", config, "/dev/shm/x")), f"{CACHE}:{CACHE}",
    ]  # fmt: skip
    assert mounts_of("chat", None, Composed({}, {}, {}), replace(H200, mounts=()), SITE)[0] == f"{config}:{config}:ro"
