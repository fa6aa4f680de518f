# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/import_recipe.yml and playbooks/fit.yml, with a model in a directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from tests.fakes.actions import Task, run_action
from tests.fakes.tensors import safetensors
from tests.fakes.wheelhouse import ROOT

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
RECIPE = """\
meta:
  hardware: {h200: verified}
model:
  model_id: org/tiny
  context_length: 4096
  base_args: [--trust-remote-code]
variants:
  default: {vram_minimum_gb: 1}
  fp4: {precision: nvfp4, model_id: org/tiny-FP4, vram_minimum_gb: 1}
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
}


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def weights(tmp_path):
    """A directory with a model of 1 MiB."""
    path = tmp_path / "weights"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "model.safetensors").write_bytes(safetensors(b"x" * 2**20))
    return path


def playbook(name, **variables):
    given = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(ANSIBLE), f"playbooks/{name}", *given]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_one_command_checks_pins_and_shows_the_plan(recipe, weights, tmp_path):
    site = tmp_path / "site"
    status, text = playbook("import_recipe.yml", recipe=recipe, import_dest=site, import_source=weights)
    assert status == 0, text
    assert (site / "recipes" / "org" / "tiny.yaml").read_text() == RECIPE
    manifest = yaml.safe_load((site / "manifests" / "org" / "tiny.yml").read_text())
    # What the memory follows from, out of the configuration.
    assert manifest["config"] == {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    # 16 GiB of cache, and 2.8 GiB besides, instead of the recipe's 1 GB.
    assert "default  8 x h200  1      18.8 GiB  the model's  pinned" in text
    assert "trust-remote-code" in text
    # vLLM computes NVFP4 on Hopper too, with Marlin.
    assert (site / "manifests" / "org" / "tiny-FP4.yml").exists()
    assert "fp4      8 x h200  1      18.8 GiB  the model's  pinned" in text


def test_a_tokenizer_of_another_repository_is_pinned_without_weights(recipe, weights, tmp_path):
    recipe.write_text(RECIPE.replace("[--trust-remote-code]", "[--tokenizer, org/tokens]"))
    (weights / "tokenizer.json").write_text("{}")
    site = tmp_path / "site"
    status, text = playbook("import_recipe.yml", recipe=recipe, import_dest=site, import_source=weights)
    assert status == 0, text
    manifest = yaml.safe_load((site / "manifests" / "org" / "tokens.yml").read_text())
    assert set(manifest["files"]) == {"config.json", "tokenizer.json"}
    # The plan after it has the path on hosts.
    assert "/srv/models/org/tokens/" in text


def test_check_mode_writes_nothing_and_a_second_run_changes_nothing(recipe, tmp_path, monkeypatch):
    options = {"file": str(recipe), "dest": str(tmp_path / "site"), "accelerators": ["h200"]}
    with monkeypatch.context() as patch:
        patch.setattr(Task, "check_mode", True)
        found = run_action("recipe_trial", options, {})
    assert found["changed"] and found["diff"]["after"] == RECIPE
    assert not (tmp_path / "site").exists()
    assert run_action("recipe_trial", options, {})["changed"]
    assert not run_action("recipe_trial", options, {})["changed"]


def test_a_file_that_replaces_the_collection_s_own_recipe_is_reported(recipe, tmp_path):
    """Instances would get other sizes, presets and hardware from the next run on."""
    options = {"file": str(recipe), "dest": str(tmp_path / "site"), "accelerators": ["h200"]}
    assert not run_action("recipe_trial", options, {}).get("warnings")
    other = recipe.with_name("other.yaml")
    other.write_text(RECIPE.replace("org/tiny\n", "openai/gpt-oss-20b\n"))
    options["file"] = str(other)
    (said,) = run_action("recipe_trial", options, {})["warnings"]
    assert "gpt-oss-20b.yaml replaces the collection's own recipe openai/gpt-oss-20b" in said
    assert not run_action("recipe_trial", options, {}).get("warnings")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # A flag that the release does not have, as its own table says.
        (RECIPE.replace("--trust-remote-code", "--cuda-graph-sizes, '8'"), "no variant can be planned"),
        (RECIPE.replace("model_id: org/tiny\n", "model_id: org/../tiny\n"), "expected <organisation>/<name>"),
        (RECIPE.replace("base_args", "basic_args"), "unknown key 'model.basic_args'; nearest: 'base_args'"),
    ],
)
def test_a_recipe_that_cannot_be_served_is_not_placed(recipe, tmp_path, text, message):
    recipe.write_text(text)
    options = {"file": str(recipe), "dest": str(tmp_path / "site"), "accelerators": ["h200"]}
    with pytest.raises(AnsibleActionFail, match=message):
        run_action("recipe_trial", options, {})
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "recipes: found none"),
        ({"recipes": ["openai/gpt-oss-12b"]}, "nearest: 'openai/gpt-oss-120b'"),
        ({"recipes": ["openai/gpt-oss-20b"], "accelerators": ["h201"]}, "accelerators: "),
        ({"recipes": ["openai/gpt-oss-20b"], "release": "0.33.1"}, "^release: no release '0.33.1' .*nearest: '0.33.0'"),
    ],
)
def test_bad_input_is_one_sentence(options, message):
    with pytest.raises(AnsibleActionFail, match=message):
        run_action("recipe_trial", options, {})


def test_all_recipes_of_site_and_collection_are_tried(recipe, tmp_path):
    run_action("recipe_trial", {"file": str(recipe), "dest": str(tmp_path / "site"), "accelerators": ["h200"]}, {})
    found = run_action("recipe_trial", {"recipes": ["all"], "recipe_path": [str(tmp_path / "site")]}, {})
    assert {"org/tiny", "openai/gpt-oss-20b", "openai/gpt-oss-120b"} <= set(found["recipes"])
    # Each on the chips that it lists itself.
    assert {trial["accelerator"] for trial in found["trials"] if trial["recipe"] == "org/tiny"} == {"h200"}
    assert {"b200", "mi300x"} <= {trial["accelerator"] for trial in found["trials"]}


def test_a_new_recipe_needs_a_place(recipe):
    with pytest.raises(AnsibleActionFail, match="dest is missing"):
        run_action("recipe_trial", {"file": str(recipe)}, {})


def test_models_by_chips_in_one_table():
    status, text = playbook("fit.yml", fit_recipes="openai/gpt-oss-20b", fit_accelerators="h100:1,l4:1")
    assert status == 0, text
    assert "openai/gpt-oss-20b  default  1 x h100  1      20 GiB    the model's  pinned" in text
