# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of a small catalogue of their own: hosts, a release, its table of options, a recipe, weights."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.restricted import Restrictions
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
    "prefill-context-parallel-size",
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
    "tokenizer": {"kind": "text"},
    "lora-modules": {"kind": "list", "of": "text"},
    "enable-lora": {"kind": "switch", "negatable": True},
    "trust-remote-code": {"kind": "switch", "negatable": True},
    "enable-sleep-mode": {"kind": "switch", "negatable": True},
    "served-model-name": {"kind": "list", "of": "text"},
    "speculative-config": {"kind": "json", "keys": {"model": "text", "num_speculative_tokens": "integer"}},
    "compilation-config": {"kind": "json", "aliases": ["-cc"], "keys": {"mode": "integer", "sizes": "list"}},
}
ENV = [
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "VLLM_LORA_RESOLVER_CACHE_DIR",
    "VLLM_HOST_IP",
    "VLLM_CACHE_ROOT",
    "VLLM_NO_USAGE_STATS",
    "VLLM_USE_X",
    "VLLM_SERVER_DEV_MODE",
    "VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE",
]
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
            "OPERATOR_GUARD",
            "HOME",
            "TIKTOKEN_ENCODINGS_BASE",
            "PYTHONPYCACHEPREFIX",
            "FROM",
            "FLAG",
            "USER",
            "TP_SOCKET_IFNAME",
            "RESIDENTS",
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


NO_RESTRICTIONS = Restrictions()


def recipe(**sections):
    """Return a recipe with these sections; ``model`` adds to its model."""
    model = {"model_id": "org/model", "base_args": ["--max-num-seqs", "8"], **sections.pop("model", {})}
    return {"model": model, "variants": {"default": {"tp": {"cpu": 1, "default": 2}}}, **sections}


def library(a_recipe, release=None, manifests=None, restrictions=NO_RESTRICTIONS):
    """Return what planning reads of a catalogue, without one."""
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
        restrictions=restrictions,
    )


class Plan(SimpleNamespace):
    """A plan whose keys are attributes; those that some plans lack are None."""

    group = residents = preload = scale = None

    def as_dict(self):
        """Return the document."""
        return vars(self)


def plans(instances, accelerator=H200, a_recipe=None, site=None, host="h1", **where_from):
    """Return the plans of a host; ``site`` overrides settings, ``where_from`` are arguments of library."""
    settings = SiteSettings(**{**SITE.__dict__, **(site or {})})
    found = plan_instances(host, accelerator, instances, settings, library(a_recipe or recipe(), **where_from))
    return [Plan(**document) for document in found]


def plan(requested=None, accelerator=H200, a_recipe=None, **more):
    """Return the first plan of an instance called chat."""
    return plans({"chat": {"recipe": "org/model", **(requested or {})}}, accelerator, a_recipe, **more)[0]


def warnings_of(found):
    """Return the warnings of a plan but for the one that every plan here has: its manifest has no config."""
    return [text for text in found.warnings if " has no config, so " not in text]


def refusal(requested=None, accelerator=H200, a_recipe=None, **more):
    """Return the message with which the instance called chat is refused."""
    with pytest.raises(PlanError) as caught:
        plan(requested, accelerator, a_recipe, **more)
    return str(caught.value)
