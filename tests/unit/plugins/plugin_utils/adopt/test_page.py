# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of adopt.yml."""

from __future__ import annotations

import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.comparison import Compared
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.entry import Adopted
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.page import WIDTH, adopted_text, variables_of

ADOPTED = Adopted("o/m", {"port": 1}, ["VLLM_API_KEY"], [("--x", "gone. "), ("--x", "gone. ")], [("--y", "odd " * 60)])


def test_the_first_part_is_what_a_site_writes():
    compared = Compared(
        "8 x h100", "0.33.0", {"recipe": "o/m", "port": 1}, removed={"seed": 1, "env.A": "b"}, added=[("--z", "why")]
    )
    variables = variables_of("chat", ADOPTED, compared, "0.33.0")
    text = adopted_text(variables, ADOPTED, compared)
    written = yaml.safe_load(text.split("\n\n", maxsplit=1)[0])
    assert written["vllm_instances"] == {"chat": {"recipe": "o/m", "port": 1}} and written["vllm_release"] == "0.33.0"
    assert "lookup" in written["vllm_secrets"]["chat"]["VLLM_API_KEY"]
    assert (
        text.count("- --x: gone\n") == 1
        and "- --seed: the recipe sets 1" in text
        and "- env.A: the recipe sets b" in text
    )
    assert text.endswith("Checked with the options of vLLM 0.33.0; planned on 8 x h100.")
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_recipe_to_write_and_a_missing_plan_are_said():
    compared = Compared(
        "1 x l4", "0.33.0", {"recipe": "o/m"}, "model:\n  model_id: o/m\n", "0.33.0", problem="too large"
    )
    text = adopted_text({"a": 1}, ADOPTED, compared)
    assert (
        "    model:\n      model_id: o/m\n\nvLLM 0.33.0 carries one" in text and "no plan on 1 x l4: too large." in text
    )
