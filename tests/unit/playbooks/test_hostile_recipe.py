# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe of somebody else: what it says is shown, and neither the terminal nor the process obeys it."""

from __future__ import annotations

import json

import pytest

from tests.fakes.inventory_plugin import command
from tests.fakes.outputs import squeezed

CONTROLS = r"\e]0;title\a\e[2J\x9b31m"
RECIPE = f"""
meta: {{title: "a{CONTROLS}"}}
model: {{model_id: org/model, base_args: ["--revision", "a{CONTROLS}"]}}
variants: {{default: {{vram_minimum_gb: 10, precision: "c{CONTROLS}"}}}}
"""


def explain(tmp_path, recipe, *words):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/model.yaml").write_text(recipe)
    hosts = {"gpu-1": {"accelerator": "h200", "accelerator_count": 8}}
    instances = {"chat": {"recipe": "org/model"}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    extra = json.dumps({"vllm_recipe_path": [str(tmp_path)], "vllm_instances": instances})
    return command(
        tmp_path, "ansible-playbook", "-i", str(tmp_path / "hosts.json"), "playbooks/explain.yml", "-e", extra, *words
    )


@pytest.mark.parametrize("words", [(), ("-e", "explain_format=json"), ("-e", "explain_instance=chta")], ids=" ".join)
def test_explain_prints_no_control(words, tmp_path):
    done = explain(tmp_path, RECIPE, *words)
    text = (done.stdout + done.stderr).replace("\n", "")
    assert "title" in text or "chta" in text
    assert text.isprintable()


def test_what_a_recipe_says_in_an_error_holds_none_either(tmp_path):
    done = explain(tmp_path, RECIPE.replace("vram_minimum_gb", f'"vram{CONTROLS}"'))
    text = (done.stdout + done.stderr).replace("\n", "")
    assert done.returncode
    assert "title" in text and text.isprintable()


def test_a_control_character_in_a_variable_is_refused(tmp_path):
    done = explain(tmp_path, RECIPE.replace("base_args", f'base_env: {{MY_NAME: "b{CONTROLS}"}}, base_args'))
    text = done.stdout + done.stderr
    assert done.returncode and squeezed("model.base_env.MY_NAME: found a text with a control character") in squeezed(
        text
    )
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("part, told", [
    # libyaml 0.2.6 and newer have a bound of their own.
    ("[" * 50_000, ("nested deeper than 20 levels", "exceeded maximum nesting depth")),
    ("9" * 6000, ("which is no int",)),
], ids=["brackets", "digits"])  # fmt: skip
def test_one_sentence_names_the_file(part, told, tmp_path):
    done = explain(tmp_path, f"model: {part}")
    assert done.returncode == 2
    text = squeezed(done.stdout + done.stderr)
    assert squeezed(f"{tmp_path}/org/model.yaml: cannot be read") in text
    assert any(squeezed(words) in text for words in told)
    assert "Traceback" not in text
