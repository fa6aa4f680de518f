# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import Foreign, OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import Library, SiteSettings
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import PlanError, plan_instances

GIB = 1024**3
H200 = Accelerator(
    "h200",
    "cuda",
    "hopper",
    "nvidia",
    8,
    141 * 1024,
    devices=("nvidia.com/gpu=all",),
    visible_env="CUDA_VISIBLE_DEVICES",
)
MI300X = Accelerator(
    "mi300x",
    "rocm",
    "gfx942",
    "amd",
    8,
    192 * 1024,
    devices=("/dev/kfd", "/dev/dri"),
    groups=("render", "video"),
    visible_env="HIP_VISIBLE_DEVICES",
)
A3 = Accelerator(
    "ascend_a3",
    "cann",
    "ascend_a3",
    "ascend",
    16,
    64 * 1024,
    devices_per_card=2,
    devices=("/dev/davinci{index}", "/dev/davinci_manager"),
    mounts=("/usr/local/dcmi",),
    groups=("HwHiAiUser",),
    visible_env="ASCEND_RT_VISIBLE_DEVICES",
    lacks=(("mxfp4", "vLLM Ascend has no MXFP4 kernels for this chip, it serves the weights in bfloat16"),),
)
CPU = Accelerator("cpu", "cpu", "cpu", "cpu", 1, 8 * 1024)

PLACES = {f"h{number}": {"address": f"10.0.0.{number}", "interface": f"eth{number}"} for number in (1, 2, 3)}
SITE = SiteSettings("2.0", "/srv/models", "/srv/encodings", "/var/cache/vllm", "/opt/vllm", 60, members=PLACES)

SIZES = (
    "tensor-parallel-size",
    "data-parallel-size",
    "data-parallel-size-local",
    "data-parallel-start-rank",
    "pipeline-parallel-size",
    "nnodes",
    "node-rank",
    "master-port",
    "data-parallel-rpc-port",
    "api-server-count",
)
FLAGS = {
    **{name: {"kind": "integer"} for name in (*SIZES, "shutdown-timeout", "max-num-seqs", "port")},
    **{name: {"kind": "text"} for name in ("a", "b", "host", "master-addr", "data-parallel-address", "kv-cache-dtype")},
    "distributed-executor-backend": {"kind": "text", "known": ["mp", "ray", "uni"]},
    "data-parallel-hybrid-lb": {"kind": "switch", "negatable": True},
    "enable-expert-parallel": {"kind": "switch", "negatable": True},
    "fail-on-environ-validation": {"kind": "switch", "negatable": True},
    "headless": {"kind": "switch"},
    "caching": {"kind": "switch", "negatable": True},
    "backend": {"kind": "choice", "values": ["auto", "marlin"]},
    "gpu-memory-utilization": {"kind": "number"},
    "max-model-len": {"kind": "integer", "suffix": True},
    "parser": {"kind": "text", "known": ["openai"]},
    "tool-call-parser": {"kind": "text"},
    "served-model-name": {"kind": "list", "of": "text"},
    "speculative-config": {"kind": "json", "keys": {"model": "text", "num_speculative_tokens": "integer"}},
    "compilation-config": {"kind": "json", "aliases": ["-cc"], "keys": {"mode": "integer", "sizes": "list"}},
}
ENV = ["VLLM_HOST_IP", "VLLM_CACHE_ROOT", "VLLM_NO_USAGE_STATS", "VLLM_USE_X"]
TABLE = OptionTable.from_data({"version": "2.0.0", "flags": FLAGS, "env": ENV})
OTHERS = (
    OptionTable.from_data(
        {
            "version": "1.0.0",
            "flags": {
                "old-flag": {"kind": "text"},
                "compilation-config": {"kind": "json", "keys": {"level": "integer"}},
            },
            "env": ["VLLM_OLD"],
        }
    ),
    OptionTable.from_data({"version": "3.0.0", "flags": {"new-flag": {"kind": "text"}}, "env": ["VLLM_NEW"]}),
)
FOREIGN = Foreign(
    frozenset(
        {
            "DO_NOT_TRACK",
            "HOME",
            "TIKTOKEN_ENCODINGS_BASE",
            "PYTHONPYCACHEPREFIX",
            "FROM",
            "FLAG",
            "USER",
            "TP_SOCKET_IFNAME",
        }
    ),
    ("NCCL_", "HCCL_", "GLOO_", "HF_", "TRANSFORMERS_", "CUDA_", "HIP_", "ASCEND_"),
)
REPLACED = {
    "old-flag": {"instead": "--new-flag", "since": "2.0.0"},
    "VLLM_OLD": {"instead": "--backend", "since": "2.0.0"},
    "compilation-config.level": {"instead": "mode", "since": "2.0.0"},
}
EXCLUSIVE = ({"settings": ["a", "b"], "because": "vLLM takes one only"},)

RELEASE = {
    "vllm": "2.0.0",
    "supports": ["shutdown-timeout", "fail-on-environ-validation"],
    "stacks": {
        "cuda": {
            "runtime": "container",
            "image": "vllm/vllm-openai:v2",
            "entrypoint": "image",
            "minimum_driver": "580",
            "container_env": {"FROM": "image"},
        },
        "rocm": {
            "runtime": "container",
            "image": "vllm/vllm-openai-rocm:v2",
            "entrypoint": ["vllm", "serve"],
            "python": "3.12",
            "requirements": "rocm.txt",
            "requirements_sha256": "cd" * 32,
            "requirements_text": "# target: cp311-x86_64\n",
        },
        "cann": {
            "runtime": "container",
            "image": "quay.io/ascend/x:v2",
            "images": {"ascend_a3": "quay.io/ascend/x:v2-a3"},
            "entrypoint": ["bash", "-lc"],
        },
        "cpu": {
            "runtime": "venv",
            "requirements": "/catalog/lock.txt",
            "requirements_sha256": "ab" * 32,
            "env": {"FROM": "stack"},
            "libraries": ["libnuma.so.1"],
        },
    },
}
MANIFESTS = {
    "org/model": {
        "repository": "org/model",
        "revision": "f" * 40,
        "files": {
            "a.safetensors": {"size": 60 * GIB},
            "b.safetensors": {"size": 4 * GIB},
            "tokenizer.json": {"size": 900 * GIB},
        },
    },
    "org/draft": {"repository": "org/draft", "revision": "d" * 40, "files": {}},
}


def recipe(**sections):
    model = {"model_id": "org/model", "base_args": ["--max-num-seqs", "8"], **sections.pop("model", {})}
    return {"model": model, "variants": {"default": {"tp": {"cpu": 1, "default": 2}}}, **sections}


def library(a_recipe, release=None, manifests=None):
    pinned = MANIFESTS if manifests is None else manifests
    return Library(
        recipe=lambda _name: a_recipe,
        release=lambda _name: release or RELEASE,
        manifest=pinned.get,
        table=lambda _version, _strict: TABLE,
        others=lambda _version: OTHERS,
        foreign=lambda _stack: FOREIGN,
        replaced=REPLACED,
        exclusive=EXCLUSIVE,
    )


def plans(instances, accelerator=H200, a_recipe=None, site=None, host="h1", **where_from):
    settings = SiteSettings(**{**SITE.__dict__, **(site or {})})
    return plan_instances(host, accelerator, instances, settings, library(a_recipe or recipe(), **where_from))


def plan(requested=None, accelerator=H200, a_recipe=None, **more):
    return plans({"chat": {"recipe": "org/model", **(requested or {})}}, accelerator, a_recipe, **more)[0]


def refusal(requested=None, accelerator=H200, a_recipe=None, **more):
    with pytest.raises(PlanError) as caught:
        plan(requested, accelerator, a_recipe, **more)
    return str(caught.value)


# --- the whole ---


def test_a_plan_is_plain_data_and_the_same_each_time():
    first, second = (json.dumps(plan().as_dict()) for _time in range(2))
    assert first == second
    assert json.loads(first)["host"] == "h1"


def test_a_document_shares_nothing_with_its_plan():
    found = plan()
    document = found.as_dict()
    before = json.dumps(document)
    document["config"]["a"] = "changed"
    document["explain"][0]["overrides"].append("changed")
    assert json.dumps(found.as_dict()) == before


def test_argv_and_config_say_the_same():
    found = plan({"host": "0.0.0.0", "port": 8001, "args": {"caching": False, "compilation-config": {"mode": 3}}})
    assert found.argv == [
        "vllm", "serve", "/srv/models/org/model/" + "f" * 40, "--served-model-name", "org/model", "--host", "0.0.0.0",
        "--port", "8001", "--max-num-seqs", "8", "--tensor-parallel-size", "2", "--shutdown-timeout", "60",
        "--fail-on-environ-validation", "--no-caching", "--compilation-config", '{"mode": 3}',
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
    assert plan({"host": host}).warnings == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu-1"])
def test_an_instance_beyond_loopback_without_a_key_is_a_warning(host):
    assert plan({"host": host}).warnings == [
        f"vllm_instances.chat.host: listens on {host} without an API key, so everybody who reaches the port can use "
        "it; set vllm_secrets.chat.VLLM_API_KEY, or leave host out to listen on 127.0.0.1"
    ]
    with_another = plan({"host": host}, site={"secrets": {"chat": ["EXA_API_KEY"], "chta": ["VLLM_API_KEY"]}})
    assert "without an API key" in with_another.warnings[0]
    assert plan({"host": host}, site={"secrets": {"chat": ["VLLM_API_KEY"]}}).warnings == []


def test_hosts_that_follow_the_first_of_an_instance_listen_to_it_alone():
    wishes = {"host": "0.0.0.0", "strategy": "multi_node_tp", "nodes": ["h1", "h2"], "node_address": "10.0.0.1"}
    a_recipe = recipe(compatible_strategies=["multi_node_tp"])
    warned = [bool(plan(wishes, a_recipe=a_recipe, host=host).warnings) for host in ("h1", "h2")]
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


# --- containers by vendor ---


def test_container_of_nvidia():
    found = plan({"replicas": 1})
    weights = "/srv/models/org/model/" + "f" * 40
    assert found.container == {
        "image": "vllm/vllm-openai:v2",
        "command": [],
        "user": "vllm",
        "shm_size": "16g",
        "devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
        "groups": [],
        "mounts": [
            f"{weights}:{weights}:ro",
            "/etc/vllm/chat.yaml:/etc/vllm/chat.yaml:ro",
            "/var/cache/vllm/chat:/var/cache/vllm/chat",
        ],
        "memlock": True,
    }
    assert found.container["mounts"] == found.mounts
    assert found.libraries == []


VOCABULARY = "TIKTOKEN_ENCODINGS_BASE"


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ({"model_id": "openai/gpt-oss-20b"}, {}),
        ({"model_id": "org/own"}, {"model_id": "acme/GPT-OSS-tuned"}),
        # A model under another name that vLLM reads with the parser of gpt-oss.
        ({"model_id": "org/own", "base_args": ["--tool-call-parser", "openai"]}, {}),
        ({"model_id": "org/own", "base_env": {VOCABULARY: "/srv/encodings"}}, {}),
    ],
)
def test_a_container_of_gpt_oss_sees_the_encodings(model, entry):
    a_recipe = recipe(model=model, variants={"default": {"tp": 2, **entry}})
    found = plan(a_recipe=a_recipe, manifests={})
    assert found.env[VOCABULARY] == "/srv/encodings"
    assert "/srv/encodings:/srv/encodings:ro" in found.mounts
    own = plan({"env": {VOCABULARY: "/srv/own"}}, a_recipe=a_recipe, manifests={})
    assert "/srv/own:/srv/own:ro" in own.mounts
    assert "/srv/encodings:/srv/encodings:ro" not in own.mounts
    none = plan({"env": {VOCABULARY: None}}, a_recipe=a_recipe, manifests={})
    assert VOCABULARY not in none.env


def test_another_model_needs_no_encodings():
    for found in (plan(), plan(a_recipe=recipe(model={"base_env": {VOCABULARY: None}}))):
        assert VOCABULARY not in found.env
        assert not [mount for mount in found.mounts if "encodings" in mount]


def test_container_of_amd():
    found = plan({"chips": [4, 5]}, MI300X)
    assert found.container["devices"] == ["/dev/kfd", "/dev/dri"]
    assert found.container["groups"] == found.groups == ["render", "video"]
    assert found.container["command"] == found.launch == ["vllm", "serve"]
    assert found.env["HIP_VISIBLE_DEVICES"] == "4,5"


def test_container_of_ascend():
    found = plan({"chips": [2, 3]}, A3)
    assert found.image == "quay.io/ascend/x:v2-a3"
    assert found.container["user"] == "root"
    assert len(found.container["devices"]) == 17
    assert "/usr/local/dcmi:/usr/local/dcmi:ro" in found.mounts
    assert found.env["ASCEND_RT_VISIBLE_DEVICES"] == "2,3"


@pytest.mark.parametrize(
    ("site", "image"),
    [
        ({}, "vllm/vllm-openai:v2"),
        ({"registry": "mirror:5000"}, "mirror:5000/vllm/vllm-openai:v2"),
        ({"image": "site/own@sha256:1", "registry": "mirror:5000"}, "site/own@sha256:1"),
    ],
)
def test_the_site_s_image(site, image):
    found = plan(site=site)
    assert found.image == found.container["image"] == image


RTX = Accelerator("rtx_5090", "cuda", "blackwell", "nvidia", 2, 32 * 1024)
ONE_CARD = {"rtx_5090": {"extra_args": ["--a", "one"]}, "rtx_5090_2x": {"extra_args": ["--kv-cache-dtype", "fp8"]}}


@pytest.mark.parametrize(("size", "there"), [(1, True), (2, False)])
def test_a_block_for_one_card_is_not_for_an_instance_of_two(size, there):
    modes = {"f": {"modes": {"m": {"hardware_overrides": {"rtx_5090": {"args": ["--a", "one"]}}}}}}
    for a_recipe in (
        recipe(hardware_overrides=ONE_CARD),
        recipe(variants={"default": {"hardware_overrides": ONE_CARD}}),
        recipe(features={"f": {"hardware_overrides": {"rtx_5090": {"args": ["--a", "one"]}}}}),
        recipe(features=modes),
        recipe(strategy_overrides={"single_node_tp": {"hardware_overrides": ONE_CARD}}),
    ):
        found = plan({"args": {"tensor-parallel-size": size}}, RTX, a_recipe, manifests={})
        assert ("a" in found.args) is there


@pytest.mark.parametrize(("strategy", "flag"), [("single_node_tep", "tensor"), ("single_node_dep", "data")])
@pytest.mark.parametrize(("size", "chips"), [(4, 4), ({"h200": 2}, 2), (None, 8), (16, 8)])
def test_a_recipe_may_name_the_chips_of_every_strategy(strategy, flag, size, chips):
    override = {strategy: {"tp": size}} if size else {}
    a_recipe = recipe(compatible_strategies=[strategy], strategy_overrides=override)
    found = plan({"replicas": 1}, a_recipe=a_recipe)
    assert (found.args[f"{flag}-parallel-size"], len(found.chips)) == (chips, chips)


def test_a_recipe_s_own_image_serves_unless_the_site_has_one():
    block = {"docker_image": "a/b:c", "docker_serve_command": "vllm serve"}
    a_recipe = recipe(variants={"default": {"tp": 2, "hardware_overrides": {"h200": block}}})
    found = plan(a_recipe=a_recipe, site={"registry": "mirror:5000"})
    assert found.image == found.container["image"] == "mirror:5000/a/b:c"
    assert found.launch == found.container["command"] == ["vllm", "serve"]
    assert "names its own build of vLLM, a/b:c" in found.warnings[0]
    own = plan(a_recipe=a_recipe, site={"image": "site/own:1"})
    assert (own.image, own.launch, own.warnings) == ("site/own:1", [], [])


# --- replicas ---


def test_a_host_is_filled_with_replicas_that_are_pinned_to_their_chips():
    found = plans({"chat": {"recipe": "org/model", "port": 8100}})
    assert [(one.instance, one.replica_of, one.chips, one.listen["port"]) for one in found] == [
        ("chat", "chat", [0, 1], 8100),
        ("chat-2", "chat", [2, 3], 8101),
        ("chat-3", "chat", [4, 5], 8102),
        ("chat-4", "chat", [6, 7], 8103),
    ]
    assert [one.config["port"] for one in found] == [8100, 8101, 8102, 8103]
    assert found[3].devices == found[3].container["devices"] == ["nvidia.com/gpu=6", "nvidia.com/gpu=7"]
    assert found[3].env["HOME"] == "/var/cache/vllm/chat-4"
    assert "/etc/vllm/chat-4.yaml:/etc/vllm/chat-4.yaml:ro" in found[3].mounts
    assert {tuple(one.args.items()) for one in found} == {tuple(found[0].args.items())}


def test_replicas_of_a_venv_see_their_chips_only():
    stack = {**RELEASE["stacks"]["cpu"], "minimum_driver": "1"}
    release = {**RELEASE, "stacks": {"cuda": stack}}
    found = plans({"chat": {"recipe": "org/model"}}, release=release)
    assert [one.env["CUDA_VISIBLE_DEVICES"] for one in found] == ["0,1", "2,3", "4,5", "6,7"]


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ({"chat": {"replicas": 2}}, {"chat": [0, 1], "chat-2": [2, 3]}),
        ({"chat": {"replicas": 1}}, {"chat": [0, 1]}),
        ({"chat": {"args": {"tensor-parallel-size": 8}}}, {"chat": list(range(8))}),
        ({"chat": {"args": {"tensor-parallel-size": "4"}}}, {"chat": [0, 1, 2, 3], "chat-2": [4, 5, 6, 7]}),
        (
            {"chat": {"args": {"pipeline-parallel-size": 2}}},
            {"chat": [0, 1, 2, 3], "chat-2": [4, 5, 6, 7]},
        ),
        ({"chat": {"args": {"data-parallel-size": 4}}}, {"chat": list(range(8))}),
        ({"chat": {"args": {"tensor-parallel-size": None, "data-parallel-size": 8}}}, {"chat": list(range(8))}),
        (
            {"a": {"port": 8000}, "b": {"port": 9000}},
            {"a": [0, 1], "a-2": [2, 3], "b": [4, 5], "b-2": [6, 7]},
        ),
        (
            {"a": {"port": 8000, "replicas": 3}, "b": {"port": 9000}},
            {"a": [0, 1], "a-2": [2, 3], "a-3": [4, 5], "b": [6, 7]},
        ),
        (
            {"a": {"port": 8000, "chips": [0, 1]}, "b": {"port": 9000, "replicas": 1}},
            {"a": [0, 1], "b": [2, 3]},
        ),
    ],
)
def test_who_gets_which_chips(instances, expected):
    found = plans({name: {"recipe": "org/model", **requested} for name, requested in instances.items()})
    assert {one.instance: one.chips for one in found} == expected


def test_dies_of_an_a3_come_in_pairs():
    found = plans({"chat": {"recipe": "org/model", "replicas": 2}}, A3)
    assert [one.chips for one in found] == [[0, 1], [2, 3]]


def test_shared_chips_need_shares_that_fit():
    shared = {"recipe": "org/model", "chips": [0, 1]}
    half = {"gpu-memory-utilization": 0.45}
    good = {"a": {**shared, "args": half}, "b": {**shared, "port": 8001, "args": half}}
    assert [one.chips for one in plans(good)] == [[0, 1], [0, 1]]
    with pytest.raises(PlanError) as caught:
        plans({**good, "b": {**shared, "port": 8001}})
    assert str(caught.value) == (
        "vllm_instances: chip 0 is shared, and the gpu-memory-utilization of its instances is above 1: a 0.45, b 0.9; "
        "lower the shares, or give each instance its own chips"
    )


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (
            {"chat": {}, "chat-2": {"port": 9000, "replicas": 1}},
            "vllm_instances.chat-2: a replica of another instance has the same name; rename one of them",
        ),
        (
            {"chat": {"replicas": 2}, "tools": {"port": 8001, "replicas": 1}},
            "vllm_instances.tools.port: 8001 is the port of vllm_instances.chat (of the replica chat-2) too; give "
            "one of "
            "them another",
        ),
        (
            {"chat": {"replicas": 1}, "tools": {"replicas": 1}},
            "vllm_instances.tools.port: 8000 is the port of vllm_instances.chat too; give one of them another",
        ),
        (
            {"chat": {"args": {"tensor-parallel-size": 16}}},
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 16 (1 replica of 16); the host has 8 x h200; lower "
            "tensor-parallel-size or replicas, or use another host",
        ),
        (
            {"chat": {"strategy": "single_node_dep", "args": {"tensor-parallel-size": 2}}},
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 16 (1 replica of 16); the host has 8 x h200; lower "
            "tensor-parallel-size or replicas, or use another host",
        ),
        (
            {"chat": {"chips": [0, 1], "args": {"tensor-parallel-size": 4}}},
            "vllm_instances.chat.chips: found 2 chips, expected 4 for its parallelism",
        ),
        (
            {"chat": {"chips": [8]}},
            "vllm_instances.chat.chips: found 8, but 8 x h200 are numbered 0 to 7",
        ),
        *(
            (
                {"chat": {"args": {"tensor-parallel-size": value}}},
                f"vllm_instances.chat.args.tensor-parallel-size: found {value!r}, expected a whole number from 1",
            )
            for value in (0, -1, "two", True, 1.5)
        ),
    ],
)
def test_instances_that_cannot_stand_together(instances, message):
    with pytest.raises(PlanError) as caught:
        plans(
            {name: {"recipe": "org/model", **requested} for name, requested in instances.items()},
            a_recipe=recipe(compatible_strategies=["single_node_tp", "single_node_dep"]),
        )
    assert str(caught.value) == message


# --- memory ---


def test_the_sum_of_weights_and_cache_by_chips():
    big = recipe(model={"context_length": 131072, "kv_cache_bytes_per_token": 1048576})
    assert plan(a_recipe=big).memory_required_gib == 192.0
    assert refusal({"args": {"tensor-parallel-size": 1}}, a_recipe=big) == (
        "vllm_instances.chat: does not fit: 64.0 GiB of weights and 128.0 GiB of KV cache for one request of 131072 "
        "tokens "
        "make 192 GiB, 1 x h200 have 141.0 GiB, of which gpu-memory-utilization 0.9 is 126.9 GiB; take more chips "
        "(tensor-parallel-size), a smaller max-model-len or variant, or another host"
    )
    assert plan({"args": {"tensor-parallel-size": 1, "max-model-len": 4096}}, a_recipe=big).memory_required_gib == 68.0


def test_with_a_manifest_the_sum_is_held_against_the_chips_that_the_recipe_names():
    model = {"context_length": 131072, "kv_cache_bytes_per_token": 1048576}
    small = recipe(model=model, variants={"default": {"tp": 1}})
    assert "make 192 GiB, 1 x h200 have 141.0 GiB" in refusal(a_recipe=small)


HUGE = recipe(variants={"default": {"tp": 8, "vram_minimum_gb": 640}})


def test_without_a_manifest_the_recipe_s_figure_counts_for_the_chips_that_were_asked_for():
    assert plan(a_recipe=HUGE, manifests={}).chips == list(range(8))
    assert refusal({"args": {"tensor-parallel-size": 2}}, a_recipe=HUGE, manifests={}) == (
        "vllm_instances.chat: does not fit: 640 GB (vram_minimum_gb of the recipe) make 640 GiB, 2 x h200 have "
        "282.0 GiB; "
        "take more chips (tensor-parallel-size), a smaller max-model-len or variant, or another host"
    )


def test_a_model_that_does_not_fit_names_the_variants_that_do():
    variants = {
        "default": {"vram_minimum_gb": 2000},
        "fp8": {"model_id": "org/model-FP8", "vram_minimum_gb": 1000},
        "big": {"vram_minimum_gb": 1500},
        "fp4": {"precision": "nvfp4", "vram_minimum_gb": 500},
        "unknown": {},
    }
    message = refusal(a_recipe=recipe(variants=variants), manifests={})
    assert message.endswith(", or another host; the variants that fit: fp8 (weights org/model-FP8)")


def test_weights_that_are_spread_over_hosts_need_their_share_of_each():
    both = recipe(
        compatible_strategies=["multi_node_tp", "multi_node_tp_dp"], variants={"default": {"vram_minimum_gb": 2000}}
    )
    requested = {"nodes": ["h1", "h2"]}
    assert plan(requested, a_recipe=both, manifests={}).memory_required_gib == 2000
    # Here each host holds all of them.
    assert refusal({**requested, "strategy": "multi_node_tp_dp"}, a_recipe=both, manifests={}) == (
        "vllm_instances.chat: does not fit: 2000 GB (vram_minimum_gb of the recipe) make 2000 GiB, 8 x h200 have "
        "1128.0 GiB; "
        "take more chips (tensor-parallel-size), a smaller max-model-len or variant, or another host"
    )


def test_a_cpu_needs_what_the_recipe_says_even_where_the_weights_are_small():
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    a_recipe = recipe(variants={"default": {"tp": 1, "vram_minimum_gb": 6}})
    assert plan(accelerator=CPU, a_recipe=a_recipe, manifests=small).memory_required_gib == 6
    instances = {"a": {"recipe": "org/model"}, "b": {"recipe": "org/model", "port": 8001}}
    with pytest.raises(PlanError) as caught:
        plans(instances, CPU, a_recipe, manifests=small)
    assert str(caught.value) == (
        "vllm_instances: too little memory: "
        "a 6 GiB, b 6 GiB (weights and KV cache, or vram_minimum_gb of the recipe) need 12 GiB, "
        "1 x cpu has 8.0 GiB; choose a smaller variant or another host"
    )


# --- several hosts ---


EVERY = [
    "single_node_tp", "multi_node_tp", "multi_node_tep", "multi_node_tp_pp", "multi_node_dep", "multi_node_tp_dp",
]  # fmt: skip
SPANS = {"nodes": ["h1", "h2", "h3"], "strategy": "multi_node_tp"}


def spanning(host="h1", **requested):
    return plan({**SPANS, **requested}, a_recipe=recipe(compatible_strategies=EVERY), host=host)


def refused(site=None, host="h1", accelerator=H200, **requested):
    a_recipe = recipe(compatible_strategies=EVERY)
    return refusal({**SPANS, **requested}, accelerator, a_recipe, host=host, site=site)


@pytest.mark.parametrize(
    ("strategy", "roles", "port"),
    [
        ("multi_node_tp", ["head", "worker", "worker"], 29501),
        ("multi_node_tep", ["head", "worker", "worker"], 29501),
        ("multi_node_tp_pp", ["head", "worker", "worker"], 29501),
        ("multi_node_dep", ["peer", "peer", "peer"], 29550),
        ("multi_node_tp_dp", ["head", "worker", "worker"], 29550),
    ],
)
def test_the_group_of_each_strategy_and_rank(strategy, roles, port):
    found = [spanning(host, strategy=strategy).as_dict() for host in SPANS["nodes"]]
    assert [one["group"]["role"] for one in found] == roles
    assert [one["group"]["rank"] for one in found] == [0, 1, 2]
    assert [one["group"]["watched"] for one in found] == [["10.0.0.2", "10.0.0.3"], ["10.0.0.1"], ["10.0.0.1"]]
    assert {one["group"]["port"] for one in found} == {port}
    assert {one["group"]["head_address"] for one in found} == {"10.0.0.1"}
    # Who accepts no requests is told no address to listen on.
    assert ["headless" in one["config"] for one in found] == [role == "worker" for role in roles]
    assert ["port" in one["config"] for one in found] == [role != "worker" for role in roles]
    assert [bool(one["listen"]) for one in found] == [role != "worker" for role in roles]


def test_the_hosts_of_a_group_differ_in_nothing_but_who_they_are():
    head, worker = (spanning(host).as_dict() for host in ("h1", "h2"))
    assert {key for key in head["args"] if head["args"][key] != worker["args"].get(key)} == {"node-rank"}
    assert {key for key in worker["args"] if key not in head["args"]} == {"headless"}
    own = {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}
    assert {key for key in head["env"] if head["env"][key] != worker["env"][key]} == own
    assert (worker["env"]["VLLM_HOST_IP"], worker["env"]["NCCL_SOCKET_IFNAME"]) == ("10.0.0.2", "eth2")
    assert (worker["args"]["master-addr"], worker["args"]["master-port"]) == ("10.0.0.1", 29501)


@pytest.mark.parametrize(
    ("accelerator", "site", "names"),
    [
        (CPU, {}, {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME"}),
        (MI300X, {}, {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}),
        (
            H200,
            {"fabric": {"hca": ["mlx5_0", "mlx5_1"], "gid_index": 3}},
            {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"},
        ),
        (
            A3,
            {},
            {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_IF_IP", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"},
        ),
    ],
    ids=lambda value: getattr(value, "model", None),
)
def test_the_variables_of_each_stack(accelerator, site, names):
    a_recipe = recipe(compatible_strategies=EVERY)
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    common = {"a_recipe": a_recipe, "site": site, "manifests": small}
    alone = plan({"strategy": "single_node_tp"}, accelerator, **common)
    grouped = plan(SPANS, accelerator, **common)
    assert set(grouped.env) - set(alone.env) == names
    if site:
        assert (grouped.env["NCCL_IB_HCA"], grouped.env["NCCL_IB_GID_INDEX"]) == ("mlx5_0,mlx5_1", "3")


def test_a_site_can_override_the_variables_of_a_group():
    assert spanning(env={"NCCL_SOCKET_IFNAME": "bond0"}).env["NCCL_SOCKET_IFNAME"] == "bond0"


def test_an_instance_on_one_host_has_no_group():
    assert "group" not in plan().as_dict()


def test_a_build_of_another_name_serves_a_group_with_the_command_that_knows_ranks():
    module = {**RELEASE, "stacks": {"cpu": {**RELEASE["stacks"]["cpu"], "entrypoint": "module"}}}
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    common = {"a_recipe": recipe(compatible_strategies=EVERY), "manifests": small, "release": module}
    alone = plan({"strategy": "single_node_tp"}, CPU, **common)
    assert alone.launch[1:] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert "distribution" not in alone.venv
    grouped = plan(SPANS, CPU, **common)
    assert grouped.launch[0].endswith("/bin/vllm") and grouped.launch[1:] == ["serve"]
    assert grouped.venv["distribution"] == "2.0.0+cpu"


def test_what_cannot_span_hosts():
    assert refused(host="h4") == "vllm_instances.chat.nodes: h4 is not among the nodes h1, h2, h3"
    assert refused(site={"members": {"h1": PLACES["h1"]}}) == (
        "vllm_instances.chat.nodes: no address of h2, h3 is known; set vllm_cluster_network to the network that the "
        "hosts of a group share, such as 10.20.0.0/24"
    )
    assert refused(nodes=["h1", "h1"]) == "vllm_instances.chat.nodes: found ['h1', 'h1'], expected each host once"
    same = {"h1": PLACES["h1"], "h2": PLACES["h1"], "h3": PLACES["h3"]}
    assert "two hosts have the same address (h1 10.0.0.1, h2 10.0.0.1" in refused(site={"members": same})
    assert refused(args={"distributed-executor-backend": "ray"}) == (
        "vllm_instances.chat.args.distributed-executor-backend: found 'ray', expected 'mp' for an instance with nodes: "
        "since 0.13 vLLM spans hosts by itself, and Ray would be a second cluster without a password that fails in the "
        "same way; leave it out"
    )
    assert refused(group_port=70000).startswith("vllm_instances.chat.group_port: found 70000, expected")


def test_two_groups_of_one_head_meet_at_different_ports():
    entry = {"recipe": "org/model", **SPANS, "args": {"gpu-memory-utilization": 0.4}}
    both = {"a": {**entry, "chips": [0, 1, 2, 3]}, "b": {**entry, "chips": [4, 5, 6, 7], "port": 8001}}
    a_recipe = recipe(compatible_strategies=EVERY)
    with pytest.raises(PlanError) as caught:
        plans(both, a_recipe=a_recipe)
    assert str(caught.value) == (
        "vllm_instances.b.group_port: 29501, at which its hosts meet, is a port of vllm_instances.a too; set another "
        "group_port on all hosts of vllm_instances.b"
    )
    both["b"]["group_port"] = 29502
    assert [one.args["master-port"] for one in plans(both, a_recipe=a_recipe)] == [29501, 29502]
    both["b"]["group_port"] = 8000
    with pytest.raises(PlanError, match=r"is a port of vllm_instances[.]a too"):
        plans(both, a_recipe=a_recipe)


# --- what cannot be chosen ---

OFFERED = {
    "variants": {"default": {"tp": 2}, "mx": {"precision": "mxfp4"}},
    "presets": {"latency": {"extra_args": ["--a", "x"]}, "measured": {"points": [1]}},
    "features": {"tools": {"args": ["--b", "x"]}, "spec": {"modes": {"eagle": {}}}},
    "opt_in_features": ["tools", "spec"],
}


@pytest.mark.parametrize(
    ("requested", "accelerator", "message"),
    [
        ({"variant": "defaul"}, H200, ".variant: recipe org/model has no variant 'defaul'; nearest: 'default'"),
        ({"preset": "latence"}, H200, ".preset: recipe org/model has no preset 'latence'; nearest: 'latency'"),
        (
            {"preset": "measured"},
            H200,
            ".preset: 'measured' of recipe org/model holds measured points for one system, so it is not a "
            "preset of this "
            "collection; copy the settings that you want to args and env",
        ),
        ({"features": ["tool"]}, H200, ".features: recipe org/model has no feature 'tool'; nearest: 'tools'"),
        (
            {"features": ["spec"], "feature_modes": {"spec": "eagel"}},
            H200,
            ".feature_modes.spec: recipe org/model has no mode 'eagel'; nearest: 'eagle'",
        ),
        (
            {"strategy": "single_node_dep"},
            H200,
            ".strategy: recipe org/model does not list 'single_node_dep' for h200; nearest: 'single_node_tp'",
        ),
        (
            {"variant": "mx"},
            A3,
            ".variant: 'mx' of recipe org/model is not for ascend_a3: vLLM Ascend has no MXFP4 kernels for this "
            "chip, it "
            "serves the weights in bfloat16; the variants that run on it: default",
        ),
        (
            {"runtime": "venv"},
            H200,
            ".runtime: release '2.0' has no lock of wheels for this stack, so the host cannot have a virtual "
            "environment; "
            "use the "
            "runtime 'container', or name a lock (requirements) in a release of your own",
        ),
    ],
)
def test_what_the_recipe_or_the_release_does_not_have(requested, accelerator, message):
    assert refusal(requested, accelerator, recipe(**OFFERED)) == f"vllm_instances.chat{message}"


def test_weights_in_a_format_that_the_chip_lacks_whatever_the_recipe_says():
    manifests = {"org/model": {**MANIFESTS["org/model"], "precision": "mxfp4"}}
    assert plan({}, manifests=manifests).model == "org/model"
    assert refusal({}, A3, manifests=manifests) == (
        "vllm_instances.chat: the weights of org/model are mxfp4, which ascend_a3 does not support: vLLM Ascend has no "
        "MXFP4 kernels for this chip, it serves the weights in bfloat16; no variant of this recipe runs on it"
    )


def test_a_rocm_lock_for_another_python():
    assert refusal({"runtime": "venv"}, MI300X) == (
        "rocm.txt: the lock is for Python 3.11, the wheels of release '2.0' for this stack are for Python 3.12 "
        "only; another Python would silently get another vendor's wheel"
    )


def test_a_driver_that_is_too_old():
    old = Accelerator(**{**H200.__dict__, "driver_version": "575.57.08"})
    assert refusal(accelerator=old) == (
        "vllm_release '2.0' needs driver 580 or newer for cuda, the host has 575.57.08; upgrade the driver, or "
        "choose an "
        "older release"
    )


@pytest.mark.parametrize(("accelerator", "release"), [(H200, "0.33.0"), (A3, "0.23.0"), (CPU, "0.32.0")])
def test_without_a_release_the_stack_decides(accelerator, release):
    # Only a recipe for all hardware is planned here; the releases are those of this file.
    found = plan(accelerator=accelerator, site={"release": ""}, manifests={})
    assert found.release == release


def test_a_stack_that_the_collection_has_no_release_for():
    other = Accelerator("rocket", "acme", "r1", "acme", 1, 8 * 1024)
    assert refusal(accelerator=other, site={"release": ""}) == (
        "vllm_release is empty, and the collection has no release for stack 'acme' (accelerator 'rocket'); name one in "
        "vllm_release, and put its file into vllm_release_path"
    )


def test_an_instance_may_have_a_release_of_its_own():
    asked = []
    theirs = library(recipe())
    requested = {"chat": {"recipe": "org/model", "release": "1.9"}}
    spy = Library(**{**theirs.__dict__, "release": lambda name: asked.append(name) or RELEASE})
    (found, *_rest) = plan_instances("h1", H200, requested, SITE, spy)
    assert (asked, found.release) == (["1.9"], "1.9")


# --- the check against the release ---


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            {"args": {"max-model-length": 1}},
            "--max-model-length: vLLM 2.0.0 has no such flag; nearest: 'max-model-len'",
        ),
        (
            {"args": {"old-flag": "x"}},
            "--old-flag: vLLM 2.0.0 has no such flag, the last release here that has it is 1.0.0; instead: --new-flag",
        ),
        (
            {"args": {"new-flag": "x"}},
            "--new-flag: vLLM 2.0.0 has no such flag, the first release here that has it is 3.0.0; "
            "no flag has a similar name",
        ),
        ({"args": {"cc": {}}}, "--cc: vLLM 2.0.0 has no such flag; nearest: 'compilation-config'"),
        (
            {"args": {"compilation-config": {"level": 3}}},
            "--compilation-config.level: no such key in vLLM 2.0.0, the last release here that has it is 1.0.0, "
            "instead: "
            "mode; known: mode, sizes",
        ),
        (
            {"args": {"compilation-config.mod": 3}},
            "--compilation-config.mod: no such key in vLLM 2.0.0; nearest: 'mode'",
        ),
        ({"args": {"max-num-seqs": "many"}}, '--max-num-seqs: expected an integer, found "many"'),
        ({"args": {"headless": False}}, "--headless: vLLM 2.0.0 has no --no-headless; leave it out"),
        ({"args": {"caching": "yes"}}, '--caching: expected true or false (a switch, it takes no value), found "yes"'),
        (
            {"args": {"backend": "marlinn"}},
            "--backend: expected one of auto, marlin, found \"marlinn\"; nearest: 'marlin'",
        ),
        (
            {"env": {"VLLM_OLD": "1"}},
            "VLLM_OLD: vLLM 2.0.0 does not read this variable, the last release here that has it is 1.0.0; "
            "instead: --backend",
        ),
        ({"env": {"VLLM_USE_Y": "1"}}, "VLLM_USE_Y: vLLM 2.0.0 does not read this variable; nearest: 'VLLM_USE_X'"),
        (
            {"args": {"a": "1", "b": "2"}},
            "--a and --b exclude each other: vLLM takes one only",
        ),
        (
            {"args": {"zzz": 1, "max-num-seqs": []}},
            "--max-num-seqs: expected an integer, found []",
        ),
    ],
)
def test_what_the_release_does_not_take_is_refused(requested, message):
    found = refusal(requested)
    assert found.startswith("vllm_instances.chat: ")
    assert message in found


@pytest.mark.parametrize(
    ("requested", "warning"),
    [
        (
            {"args": {"max-model-length": 1}},
            "vllm_instances.chat: --max-model-length: vLLM 2.0.0 has no such flag; nearest: 'max-model-len'",
        ),
        (
            {"args": {"compilation-config": {"mod": 3}}},
            "vllm_instances.chat: --compilation-config.mod: no such key in vLLM 2.0.0; nearest: 'mode'",
        ),
        (
            {"env": {"VLLM_USE_Y": "1"}},
            "vllm_instances.chat: VLLM_USE_Y: vLLM 2.0.0 does not read this variable; nearest: 'VLLM_USE_X'",
        ),
    ],
)
def test_a_lenient_site_is_warned_of_names_that_the_table_does_not_have(requested, warning):
    refusal(requested)
    assert warning in plan(requested, site={"strict": False}).warnings


@pytest.mark.parametrize(
    "args",
    [
        {"max-num-seqs": "many"},
        {"headless": False},
        {"backend": "marlni"},
        {"compilation-config": {"mode": "x"}},
        {"a": "1", "b": "2"},
    ],
)
def test_a_lenient_site_is_refused_what_is_wrong_all_the_same(args):
    assert refusal({"args": args}, site={"strict": False}) == refusal({"args": args})


def test_doubts_are_warnings():
    found = plan({"args": {"parser": "opnai"}, "env": {"MY_OWN": "1"}}).warnings
    assert "vllm_instances.chat: --parser: the types of vLLM 2.0.0 do not name 'opnai'; nearest: 'openai'" in found
    assert (
        "vllm_instances.chat.env: MY_OWN: neither vLLM 2.0.0 nor a library on this stack is known to read it; add "
        "it to the "
        "foreign variables where a library does"
    ) in found


def test_what_the_collection_sets_itself_gives_no_warning():
    assert plan({"replicas": 1}, a_recipe=recipe()).warnings == []


def test_a_recipe_for_a_nightly_and_weights_without_a_manifest_are_warnings():
    found = plan(a_recipe=recipe(model={"nightly_required": True}), manifests={}).warnings
    assert found == [
        "vllm_instances.chat.recipe: org/model was written for a nightly of vLLM; release '2.0' may be too old for it",
        "vllm_instances.chat: no manifest pins the weights of org/model, so no host can fetch them; make a manifest: "
        "ansible-playbook playbooks/pin_weights.yml -e pin_model=org/model -e pin_dest=DIR, and set "
        "weights_manifest_path: [DIR]",
    ]


# --- guards, known issues, rules ---


def test_guards_see_what_came_out():
    guards = [
        {"when": {"args": {"max-num-seqs": ">=8"}, "tensor_parallel_size": 2}, "warn": "Many."},
        {"when": {"env": {"FLAG": "absent"}, "secrets": {"FLAG": "absent"}}, "refuse": "FLAG is missing."},
        {"when": {"args": {"no-caching": True}}, "refuse": "Caching is needed."},
    ]
    a_recipe = recipe(guards=guards)
    assert refusal(a_recipe=a_recipe) == "vllm_instances.chat: FLAG is missing."
    assert plan({"env": {"FLAG": "1"}}, a_recipe=a_recipe).warnings == ["vllm_instances.chat: Many."]
    by_secret = {"secrets": {"chat": ["FLAG"]}}
    assert plan({"args": {"max-num-seqs": 7}}, a_recipe=a_recipe, site=by_secret).warnings == []
    assert refusal({"args": {"caching": False}}, a_recipe=a_recipe, site=by_secret) == (
        "vllm_instances.chat: Caching is needed."
    )


def test_known_issues_of_this_host():
    issues = [
        {"symptom": "boom", "advice": "Duck.", "when": {"generation": "hopper"}},
        {"symptom": "b", "advice": "x", "when": {"generation": "amd"}},
    ]
    assert plan(a_recipe=recipe(known_issues=issues)).known_issues == [{"symptom": "boom", "advice": "Duck."}]


def test_rules_know_the_sizes_that_the_instance_asked_for():
    rules = [
        {
            "when": {"tensor_parallel_size": 1, "memory_gib": ">140", "runtime": "container"},
            "extra_args": ["--a", "one"],
        }
    ]
    a_recipe = recipe(hardware_overrides={"h200": {"rules": rules}})
    assert "a" not in plan(a_recipe=a_recipe).args
    assert plan({"args": {"tensor-parallel-size": 1}}, a_recipe=a_recipe).args["a"] == "one"


# --- draft models ---

SPEC = recipe(
    features={"spec": {"args": ["--speculative-config", '{"model": "org/draft", "num_speculative_tokens": 3}']}},
)


def test_a_draft_model_is_named_by_its_path_on_the_host():
    found = plan(a_recipe=SPEC)
    path = "/srv/models/org/draft/" + "d" * 40
    assert found.args["speculative-config"] == {"model": path, "num_speculative_tokens": 3}
    assert f"{path}:{path}:ro" in found.mounts
    assert found.models == ["org/model", "org/draft"]
    assert json.loads(found.config["speculative-config"])["model"] == path


def test_a_draft_model_without_a_manifest_keeps_its_name_and_is_warned_of():
    found = plan(a_recipe=SPEC, manifests={"org/model": MANIFESTS["org/model"]})
    assert found.args["speculative-config"]["model"] == "org/draft"
    assert found.warnings == [
        "vllm_instances.chat: no manifest pins the weights of org/draft, so no host can fetch them; make a manifest: "
        "ansible-playbook playbooks/pin_weights.yml -e pin_model=org/draft -e pin_dest=DIR, and set "
        "weights_manifest_path: [DIR]"
    ]


@pytest.mark.parametrize("model", ["/srv/mine", "ngram", None])
def test_a_draft_model_that_is_no_repository(model):
    requested = {"args": {"speculative-config.model": model}}
    assert plan(requested, a_recipe=SPEC).models == ["org/model"]


def test_no_speculation_no_draft_model():
    assert plan({"args": {"speculative-config": None}}, a_recipe=SPEC).models == ["org/model"]


# --- explain ---


def explained(found):
    return {row["key"]: row for row in found.explain}


def test_explain_names_the_layer_the_reason_and_what_was_overridden():
    a_recipe = recipe(
        hardware_overrides={
            "hopper": {
                "rules": [
                    {"because": "Hopper likes it", "extra_args": ["--max-num-seqs", "16"], "extra_env": {"FLAG": "1"}}
                ]
            }
        }
    )
    rows = explained(plan({"args": {"max-num-seqs": 32}, "env": {"FLAG": "2"}}, a_recipe=a_recipe))
    assert rows["max-num-seqs"] == {
        "key": "max-num-seqs",
        "value": 32,
        "layer": "vllm_instances.chat",
        "because": "the site's own word",
        "overrides": [{"layer": "model", "value": 8}, {"layer": "hardware_overrides.hopper", "value": 16}],
    }
    assert rows["env.FLAG"]["overrides"] == [{"layer": "hardware_overrides.hopper", "value": "1"}]
    assert rows["tensor-parallel-size"]["because"] == "tp of the recipe's variant"
    assert rows["shutdown-timeout"]["layer"] == rows["env.HF_HUB_OFFLINE"]["layer"] == "collection"
    assert rows["shutdown-timeout"]["because"] == "requests finish before a stop"
    unknown = "by default vLLM ignores a VLLM_* variable that it does not know"
    assert rows["fail-on-environ-validation"]["because"] == unknown
    assert rows["env.HOME"] == {
        "key": "env.HOME",
        "value": "/var/cache/vllm/chat",
        "layer": "collection",
        "because": "the instance's own place on this host",
        "overrides": [],
    }
    rows = explained(plan(a_recipe=a_recipe))
    assert (rows["max-num-seqs"]["because"], rows["env.FLAG"]["because"]) == ("Hopper likes it", "Hopper likes it")


def test_explain_has_a_row_for_every_argument_and_variable():
    found = plan({"args": {"caching": False}})
    assert [row["key"] for row in found.explain] == [*found.args, *(f"env.{name}" for name in found.env)]
    assert explained(found)["no-caching"]["layer"] == "vllm_instances.chat"


def test_an_environment_says_with_what_kernels_are_compiled():
    lock = {
        "requirements": "/l/12.txt",
        "requirements_sha256": "ef" * 32,
        "requirements_text": "# target: cp312-x86_64\nflashinfer-python==1\nninja==1\nnvidia-cuda-nvcc==13.0.88\n",
    }
    cuda = {**RELEASE["stacks"]["cuda"], "requirements": {"3.12": lock}}
    release = {**RELEASE, "stacks": {"cuda": cuda}}
    found = plan({"runtime": "venv"}, release=release)
    root = f"/opt/vllm/2.0.0-cuda-{'ef' * 6}"
    assert found.env["CUDA_HOME"] == f"{root}/lib/python3.12/site-packages/nvidia/cu13"
    assert found.env["PATH"].startswith(f"{root}/bin:/usr/local/sbin:")
    assert found.compilers == ["cc", "Python.h", "c++"]
    assert any(issue["symptom"] == "Python.h: No such file" for issue in found.known_issues)
    row = next(row for row in found.explain if row["key"] == "env.CUDA_HOME")
    assert (row["layer"], row["because"]) == (
        "collection",
        "FlashInfer compiles its kernels with the ninja and the nvcc of the lock",
    )
    own = plan({"runtime": "venv", "env": {"CUDA_HOME": "/usr/local/cuda"}}, release=release)
    assert own.env["CUDA_HOME"] == "/usr/local/cuda"
    container = plan(release=release)
    assert (container.compilers, "PATH" in container.env) == ([], False)
