# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings in pages of guides, in files and in recipes."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.uses import (
    DriftError,
    command_uses,
    config_uses,
    recipe_uses,
)

from tests.fakes.plans import H200, MI300X

PAGE = """# How to serve
Install it with pip install vllm, then vllm serve is there.

$ export VLLM_A=1 VLLM_B="two words"   # a comment
export PATH
> sudo env VLLM_C=3 vllm serve org/model \\
    --port 8000 --served-model-name a b \\
    --enable-x --config={"y":\\ 1} -O3 -cc.mode=3 | tee log
python3 -m vllm.entrypoints.openai.api_server --model m; rm -rf /
vllm servexy --no
"""


def test_a_page_has_exports_and_commands_among_its_text():
    found = [(use.name, use.value, use.where) for use in command_uses(PAGE, "guide.md")]
    assert found == [
        ("VLLM_A", "1", "guide.md:4"), ("VLLM_B", "two words", "guide.md:4"), ("VLLM_C", "3", "guide.md:6"),
        ("--port", "8000", "guide.md:6"), ("--served-model-name", ["a", "b"], "guide.md:6"),
        ("--enable-x", True, "guide.md:6"),
        ("--config", '{y: 1}', "guide.md:6"), ("-O3", "3", "guide.md:6"), ("-cc.mode", "3", "guide.md:6"),
        ("--model", "m", "guide.md:9"),
    ]  # fmt: skip


def test_a_backslash_at_the_end_of_a_page_joins_nothing():
    assert [use.name for use in command_uses("vllm serve m --a \\", "x")] == ["--a"]


def test_words_that_no_shell_reads_are_named_with_their_line():
    with pytest.raises(DriftError, match=r"\Ax:2: .*; expected words of a shell, found"):
        command_uses("\nvllm serve m --a 'b\n", "x")


def test_keys_of_a_file_are_flags():
    assert [(use.name, use.value) for use in config_uses({"port": 8000, "x": {"a": 1}}, "c.yml")] == [
        ("--port", 8000), ("--x", {"a": 1}),
    ]  # fmt: skip


RECIPE = {
    "meta": {"args": ["--meta"]},
    "model": {"base_args": ["--base", "1"], "base_env": {"A": 1, "GONE": None}},
    "variants": {"fp8": {"extra_args": ["--fp8"], "supported_hardware": ["h200"]}},
    "hardware_overrides": {"hopper": {"extra_args": ["--hopper"]}, "amd": {"extra_args": ["--amd"]}},
    "rules": [
        {"when": {"vllm": "<0.30"}, "args": ["--old"]}, {"when": {"vllm": ">=0.30"}, "args": ["--new"]},
        {"when": {"stack": ["rocm"]}, "args": ["--rocm"]}, {"unless": {"vllm": ">=0.1"}, "args": ["--never"]},
        {"when": {"features": ["tool_calling"]}, "args": ["--perhaps"]}, "no rule",
    ],
}  # fmt: skip


def uses(accelerator=None):
    return {use.name: use for use in recipe_uses(RECIPE, "0.20.0", "0.33.0", accelerator)}


def test_rules_say_which_of_two_releases_they_are_for():
    found = uses()
    assert (found["--old"].older, found["--old"].newer) == (True, False)
    assert (found["--new"].older, found["--new"].newer) == (False, True)
    assert (found["--base"].older, found["--base"].newer, found["--base"].value) == (True, True, "1")
    assert not {"--meta", "--never"} & set(found) and "--perhaps" in found
    assert (found["A"].value, found["GONE"].value, found["A"].where) == ("1", None, "model")
    assert found["--old"].where == "rules[0]" and found["--fp8"].where == "variants.fp8"


def test_of_one_accelerator_only_its_own_blocks_count():
    every, nvidia, amd = set(uses()), set(uses(H200)), set(uses(MI300X))
    assert {"--hopper", "--amd", "--rocm"} <= every
    assert "--fp8" in nvidia and "--fp8" not in amd and "--rocm" in amd and "--rocm" not in nvidia
    assert "--hopper" in nvidia and "--hopper" not in amd and "--amd" not in nvidia
