# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.weights.load_format import load_format_of

MISTRAL = ["--tokenizer_mode", "mistral", "--load_format", "mistral"]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({}, "auto"),
        ({"model": {"base_args": ["--tokenizer-mode", "mistral"]}}, "auto"),
        ({"model": {"base_args": ["--load-format", "runai_streamer"]}}, "auto"),
        ({"model": {"base_args": MISTRAL}}, "mistral"),
        ({"model": {"base_args": ["--load-format=mistral"]}}, "mistral"),
        ({"model": {"base_args": []}, "variants": {"default": {"extra_args": MISTRAL}}}, "both"),
        ({"model": None, "guide": "vllm serve --load_format mistral"}, "auto"),
    ],
)
def test_format_that_a_recipe_reads(recipe, expected):
    assert load_format_of(recipe) == expected
