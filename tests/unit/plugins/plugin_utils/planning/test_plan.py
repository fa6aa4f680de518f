# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan instances: the document, its arguments and its environment."""

from __future__ import annotations

import json

import pytest

from tests.fakes.plans import (
    CPU,
    MANIFESTS,
    RELEASE,
    plan,
    plans,
    recipe,
    warnings_of,
)


def test_a_plan_is_plain_data_and_the_same_each_time():
    first, second = (json.dumps(plan().as_dict()) for _time in range(2))
    assert first == second
    assert json.loads(first)["host"] == "h1"


def test_a_host_without_instances_has_no_plan():
    assert plans({}) == []


def test_replicas_share_no_mapping_or_list():
    first, second = plans({"chat": {"recipe": "org/model", "replicas": 2}})
    before = json.dumps(second.as_dict())
    first.config["a"] = "changed"
    first.explain[0]["overrides"].append("changed")
    first.features["a"] = "changed"
    first.compilers.append("changed")
    assert json.dumps(second.as_dict()) == before


def test_argv_and_config_say_the_same():
    found = plan({"host": "0.0.0.0", "port": 8001, "args": {"caching": False, "compilation-config": {"mode": 3}}})
    assert found.argv == [
        "vllm", "serve", "/srv/models/org/model/" + "f" * 40, "--served-model-name", "org/model", "--host", "0.0.0.0",
        "--port", "8001", "--max-num-seqs", "8", "--tensor-parallel-size", "2", "--shutdown-timeout", "60",
        "--fail-on-environ-validation", "--no-caching", "--compilation-config", '{"mode": 3}',
        "--middleware", "availability.Availability",
    ]  # fmt: skip
    assert found.config == {
        "model": "/srv/models/org/model/" + "f" * 40,
        "served-model-name": ["org/model"],
        "host": "0.0.0.0",
        "port": 8001,
        "max-num-seqs": 8,
        "tensor-parallel-size": 2,
        "shutdown-timeout": 60,
        "fail-on-environ-validation": True,
        "no-caching": True,
        "compilation-config": '{"mode": 3}',
    }
    assert found.listen == {"host": "0.0.0.0", "port": 8001}


def test_it_listens_on_loopback_unless_told_otherwise():
    assert plan().listen == {"host": "127.0.0.1", "port": 8000}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "::1", "localhost"])
def test_loopback_needs_no_key(host):
    assert warnings_of(plan({"host": host})) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu-1"])
def test_an_instance_beyond_loopback_without_a_key_is_a_warning(host):
    assert warnings_of(plan({"host": host})) == [
        f"vllm_instances.chat.host: listens on {host} without an API key, so everybody who reaches the port can use "
        "it; behind a gateway, let only gateways reach it; otherwise set vllm_secrets.chat.VLLM_API_KEY, or leave host "
        "out to listen on 127.0.0.1"
    ]
    with_another = plan({"host": host}, site={"secrets": {"chat": ["EXA_API_KEY"], "chta": ["VLLM_API_KEY"]}})
    assert "without an API key" in warnings_of(with_another)[0]
    assert warnings_of(plan({"host": host}, site={"secrets": {"chat": ["VLLM_API_KEY"]}})) == []


def test_hosts_that_follow_the_first_of_an_instance_listen_to_it_alone():
    wishes = {"host": "0.0.0.0", "strategy": "multi_node_tp", "nodes": ["h1", "h2"], "node_address": "10.0.0.1"}
    a_recipe = recipe(compatible_strategies=["multi_node_tp"])
    warned = [bool(warnings_of(plan(wishes, a_recipe=a_recipe, host=host))) for host in ("h1", "h2")]
    assert warned == [True, False]


def test_a_recipe_has_no_word_in_where_it_listens_and_under_which_name():
    words = ["--port", "9000", "--host", "0.0.0.0", "--served-model-name", "x"]
    found = plan(a_recipe=recipe(model={"base_args": words}))
    assert (found.config["port"], found.config["host"]) == (8000, "127.0.0.1")
    assert found.config["served-model-name"] == found.served_model_names == ["org/model"]
    assert not {"port", "host", "served-model-name"} & set(found.args)


def test_a_release_without_the_options_gets_none_of_the_collection_s_own():
    assert not {"shutdown-timeout", "fail-on-environ-validation"} & set(plan(release={**RELEASE, "supports": []}).args)


def test_environment_keeps_vllm_offline_and_its_caches_its_own():
    env = plan({"env": {"HF_HOME": "/mine", "VLLM_USE_X": 1, "FLAG": "yes", "DO_NOT_TRACK": None}}).env
    assert env["HF_HOME"] == "/mine"
    assert env["VLLM_CACHE_ROOT"] == "/var/cache/vllm/chat/vllm"
    assert env["TRITON_CACHE_DIR"] == "/var/cache/vllm/chat/triton"
    assert env["TORCHINDUCTOR_CACHE_DIR"] == "/var/cache/vllm/chat/torchinductor"
    assert (env["HF_HUB_OFFLINE"], env["TRANSFORMERS_OFFLINE"], env["VLLM_NO_USAGE_STATS"]) == ("1", "1", "1")
    assert (env["VLLM_USE_X"], env["FLAG"], env["FROM"], env["USER"]) == ("1", "yes", "image", "vllm")
    assert "DO_NOT_TRACK" not in env
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert list(env) == sorted(env)


def test_a_venv_on_a_cpu():
    found = plan(accelerator=CPU, manifests={})
    assert found.venv["path"] == "/opt/vllm/2.0.0-cpu-abababababab"
    assert found.launch == ["/opt/vllm/2.0.0-cpu-abababababab/bin/vllm", "serve"]
    assert (found.image, found.container, found.mounts, found.chips) == (None, None, [], [])
    assert found.libraries == ["libnuma.so.1"]
    assert found.env["FROM"] == "stack"
    assert "USER" not in found.env


def test_two_instances_serve_two_revisions_of_one_model():
    older = {**MANIFESTS["org/model"], "revision": "e" * 40}
    instances = {
        "chat": {"recipe": "org/model", "replicas": 1},
        "old": {"recipe": "org/model", "replicas": 1, "port": 8010, "revision": "e" * 40},
    }
    chat, old = plans(instances, manifests={**MANIFESTS, "org/model@" + "e" * 40: older})
    assert (chat.revision, old.revision) == ("f" * 40, "e" * 40)
    assert (chat.models, old.models) == (["org/model"], ["org/model@" + "e" * 40])
    assert old.weights == "/srv/models/org/model/" + "e" * 40
    assert chat.served_model_names == old.served_model_names == ["org/model"]
    assert old.memory_required_gib == chat.memory_required_gib


def test_a_revision_without_a_manifest_is_named_with_the_command():
    found = plan({"revision": "e" * 40})
    assert found.revision is None
    assert f"-e pin_model=org/model -e pin_revision={'e' * 40} -e pin_beside=true" in " ".join(found.warnings)


def test_the_middleware_and_what_it_reads_are_a_part_of_the_plan():
    found = plan({"env": {"PYTHONPATH": "/opt/mine"}})
    assert found.middleware == ["--middleware", "availability.Availability"] == found.argv[-2:]
    assert found.env["AVAILABILITY_DIRECTORY"] == "/run/vllm/chat"
    # The instance's own path comes after that of the middleware.
    assert found.env["PYTHONPATH"] == "/usr/local/lib/vllm:/opt/mine"
