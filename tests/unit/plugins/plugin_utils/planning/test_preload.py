# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of instances whose weights stay on the chips, with the recipes and releases of the catalogue."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_manifest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

MODEL = "baremetal/gpt-oss-smoke"


def plan(requested=None, chip="h200", release="0.33.0", **more):
    chat = {"recipe": MODEL, "runtime": "venv", "preload": True, "args": {}, "env": {}, **(requested or {})}
    settings = {**SITE, "instances": {"chat": chat}, "release": release, **more}
    return plan_host("host", declared_accelerator(load_catalogue(), chip, 8), settings)["chat"]


def refusal(*given, **more):
    with pytest.raises(PlanError) as caught:
        plan(*given, **more)
    return str(caught.value)


def directory_of(found):
    assert found["args"]["load-format"] == "ipc_cache" and found["preload"] is True
    return found["args"]["model-loader-extra-config"]["socket_dir"]


def test_the_engine_takes_the_weights_from_the_directory_of_its_manifest():
    found = plan()
    directory = directory_of(found)
    # With vLLM's name of a socket, its path has at most 107 bytes.
    assert directory.startswith("/run/vllm-preload/") and len(directory) <= 45
    assert directory in " ".join(found["argv"])
    assert {line["key"] for line in found["explain"]} >= {"load-format"}


def test_a_checkpoint_with_the_same_headers_and_other_bytes_is_not_served(tmp_path):
    """vLLM's own key would be equal: it has the headers alone, and these two differ in no name, size or revision."""
    manifest = copy.deepcopy(load_manifest(MODEL))
    name = next(name for name in manifest["files"] if name.endswith(".safetensors"))
    manifest["files"][name]["sha256"] = "0" * 64
    (tmp_path / "baremetal").mkdir()
    (tmp_path / f"{MODEL}.yml").write_text(yaml.safe_dump(manifest))
    assert directory_of(plan(weights_manifest_path=[str(tmp_path)])) != directory_of(plan())


def test_it_is_off_by_default():
    found = plan({"preload": False})
    assert "preload" not in found and "load-format" not in found["args"]


@pytest.mark.parametrize(("requested", "more", "why"), [
    ({"runtime": "container"}, {"chip": "mi300x"}, "mi300x is no chip of NVIDIA"),
    ({"runtime": "container"}, {}, "the runtime is 'container', expected 'venv'"),
    ({}, {"release": "0.25.1"}, "vLLM 0.25.1 has no `vllm preload`"),
    ({"residents": "a"}, {}, "an instance with residents sleeps"),
    ({"args": {"enable-sleep-mode": True}}, {}, "weights of another process cannot sleep"),
    (
        {"args": {"gpu-memory-utilization": 0.999}},
        {},
        "gpu-memory-utilization 0.999 leaves 0.1 GiB of a chip, of which the process that holds the weights takes 0.5",
    ),
    ({"args": {"load-format": "dummy"}}, {}, "args set load-format, which preload sets"),
])  # fmt: skip
def test_what_excludes_it_is_one_sentence(requested, more, why):
    said = refusal(requested, **more)
    assert said.startswith("vllm_instances.chat.preload: found true, and ") and why in said
    assert said.endswith("; remove preload")


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "openai/gpt-oss-120b"])
def test_experts_that_vllm_cannot_hand_over_are_refused(model):
    """``GptOssMxfp4MoEMethod`` of 0.32 and 0.33 does not declare ``supports_pre_processed_weights``."""
    assert "cannot take gpt-oss's experts over from `vllm preload`" in refusal({"recipe": model})


def test_weights_without_a_manifest_are_refused(tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/model.yaml").write_text("model: {model_id: org/unpinned, context_length: 4096}\n")
    said = refusal({"recipe": "org/model"}, recipe_path=[str(tmp_path)])
    assert "chat.preload: no manifest pins the weights of org/unpinned" in said


def test_the_format_alone_is_refused():
    assert "set preload: true in place of load-format" in refusal(
        {"preload": False, "args": {"load-format": "ipc_cache"}}
    )


def test_anything_but_true_or_false_is_refused():
    assert "preload: found 'yes', expected true or false" in refusal({"preload": "yes"})
