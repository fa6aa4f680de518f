# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import CATALOG
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import load_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.proposal import instance_diff, recipe_diff

RECIPE = (CATALOG / "recipes/openai/gpt-oss-20b.yml").read_text()
HARDWARE = ("h200", "0.25.1")
VARIANT = {"args": {"moe-backend": "marlin", "enforce-eager": True, "compilation-config": {"a": 1}}, "env": {"A": 1}}


def patched(text, diff):
    """Return a text with the lines that a diff adds behind its line of context; it removes none."""
    lines, added, at = text.splitlines(), [], 0
    for line in diff.splitlines()[2:]:
        if line.startswith("@@"):
            at = int(line.split("+", maxsplit=1)[1].split(",", maxsplit=1)[0]) - 1
            continue
        assert not line.startswith("-"), line
        if line.startswith("+"):
            lines.insert(at, line[1:])
            added.append(line[1:])
        at += 1
    assert added
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("preset", ["throughput", "balanced", "latency", "agents", "evaluation"])
def test_a_variant_becomes_the_last_rule_of_its_preset(preset):
    diff = recipe_diff(RECIPE, "gpt-oss-20b.yml", preset, HARDWARE, VARIANT, "Measured: 9 instead of 8")
    before, after = load_yaml(RECIPE), load_yaml(patched(RECIPE, diff))
    rules = after["presets"][preset].pop("rules")
    assert rules.pop() == {
        "when": {"accelerator": "h200", "vllm": ">=0.25.1"},
        "because": "Measured: 9 instead of 8",
        "extra_args": ["--moe-backend", "marlin", "--enforce-eager", "--compilation-config", '{"a": 1}'],
        "extra_env": {"A": "1"},
    }
    assert rules == before["presets"][preset].pop("rules", [])
    assert after == before


@pytest.mark.parametrize(
    ("preset", "variant"),
    [
        (None, VARIANT),
        ("unknown", VARIANT),
        ("balanced", {"args": {"a": None}}),
        ("balanced", {"args": {"a": 1}, "strategy": "single_node_tp"}),
        ("balanced", {"preset": "latency"}),
    ],
)
def test_what_a_rule_cannot_say(preset, variant):
    assert recipe_diff(RECIPE, "x.yml", preset, HARDWARE, variant, "x") == ""


def test_a_preset_in_one_line_is_left_alone():
    text = "model: {model_id: a/b}\npresets:\n  balanced: {description: x}\n"
    assert recipe_diff(text, "x.yml", "balanced", HARDWARE, VARIANT, "x") == ""


def test_the_last_line_of_a_file_without_an_end():
    text = "model: {model_id: a/b}\npresets:\n  balanced:\n    extra_args: [--a]"
    assert "+    rules:\n+      - when:" in recipe_diff(text, "x.yml", "balanced", HARDWARE, VARIANT, "x")


def test_the_change_of_an_instance():
    before = {"chat": {"recipe": "a/b", "args": {"x": 1}}, "other": {"recipe": "c/d"}}
    after = {**before, "chat": {"recipe": "a/b", "args": {"x": 1, "moe-backend": "marlin"}}}
    assert instance_diff(before, after, "chat") == (
        "--- vllm_instances (now)\n+++ vllm_instances (proposed)\n@@ -3,3 +3,4 @@\n     recipe: a/b\n"
        "     args:\n       x: 1\n"
        "+      moe-backend: marlin\n"
    )


def test_a_proposal_to_write_evaluates_no_text_that_the_site_had_marked():
    text = "{{ 6 * 7 }}"
    before, after = ({"chat": {"args": {"chat-template": text, "max-num-seqs": number}}} for number in (1, 2))
    assert f"       chat-template: !unsafe '{text}'\n" in instance_diff(before, after, "chat")
