# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_families
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.packages import check_packages

PACKAGES = load_families()["packages"]


def checked(architecture, text, runtime="venv"):
    """Return the refusal of an instance whose lock has a text, empty where it is not refused."""
    stack = {"requirements": "lock.txt", "requirements_text": text}
    entry = SimpleNamespace(where="vllm_instances.chat", model="org/model", runtime=runtime, stack=stack)
    manifest = {"config": {"architectures": [architecture]}} if architecture else None
    try:
        check_packages(entry, manifest, PACKAGES)
    except PlanError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize(
    ("architecture", "text", "lacking"),
    [
        ("LlavaForConditionalGeneration", "torch==2.13.0+cpu\n", "torchvision"),
        ("InternVLChatModel", "torch==2.13.0+cpu\n", "torchvision"),
        ("Qwen3VLForConditionalGeneration", "torch==2.13.0+cpu\n# torchvision==1\n", "torchvision"),
        ("FunASRForConditionalGeneration", "av==1\n", "torchaudio"),
        ("WhisperForConditionalGeneration", "torch==2.13.0+cpu\n", "soundfile, av or torchcodec"),
        ("VoxtralRealtimeGeneration", "torchvision==1\n", "soundfile, av or torchcodec"),
    ],
)
def test_a_lock_that_lacks_what_the_model_imports_is_refused(architecture, text, lacking):
    assert checked(architecture, text) == (
        f"vllm_instances.chat.recipe: org/model needs {lacking}, which the lock lock.txt lacks; set "
        "vllm_instances.chat.runtime: container with an image that has it, or make a lock with it "
        "(playbooks/lock_release.yml, lock_requirements)"
    )
    assert checked(architecture, text, runtime="container") == ""


@pytest.mark.parametrize(
    ("architecture", "text"),
    [
        ("LlavaForConditionalGeneration", "torchvision==0.28.0+cpu \\\n"),
        ("WhisperForConditionalGeneration", "soundfile==1\n"),
        ("WhisperForConditionalGeneration", "torchcodec==1\n"),
        ("Idefics3ForConditionalGeneration", "torch==1\n"),
        ("Qwen3ForCausalLM", "torch==1\n"),
        (None, "torch==1\n"),
        ("LlavaForConditionalGeneration", ""),
    ],
)
def test_other_locks_and_models_pass(architecture, text):
    assert checked(architecture, text) == ""


@pytest.mark.parametrize(
    ("architecture", "chip", "refused"),
    [
        ("Qwen3VLForConditionalGeneration", "cpu", True),
        ("WhisperForConditionalGeneration", "cpu", True),
        ("Idefics3ForConditionalGeneration", "cpu", False),
        ("Qwen3VLForConditionalGeneration", "h200", False),
        ("WhisperForConditionalGeneration", "h200", False),
    ],
)
def test_the_bundled_locks(tmp_path, architecture, chip, refused):
    for kind in ("recipes", "weights"):
        (tmp_path / kind / "org").mkdir(parents=True)
    (tmp_path / "recipes/org/model.yaml").write_text("model: {model_id: org/model, context_length: 4096}\n")
    (tmp_path / "weights/org/model.yml").write_text(
        f"repository: org/model\nrevision: {'a' * 40}\nconfig: {{architectures: [{architecture}]}}\n"
        f"files: {{model.safetensors: {{size: 1, sha256: {'a' * 64}}}}}\n"
    )
    settings = {
        **SITE,
        "instances": {"chat": {"recipe": "org/model", "runtime": "venv"}},
        "release": "0.32.0",
        "recipe_path": [str(tmp_path / "recipes")],
        "weights_manifest_path": [str(tmp_path / "weights")],
    }
    accelerator = declared_accelerator(load_catalogue(), chip, 1, memory_gib=64 if chip == "cpu" else None)
    if refused:
        with pytest.raises(PlanError, match=r"0\.32\.0-cpu-cp311-x86_64\.txt lacks; set"):
            plan_host("host", accelerator, settings)
    else:
        assert plan_host("host", accelerator, settings)["chat"]["runtime"] == "venv"
