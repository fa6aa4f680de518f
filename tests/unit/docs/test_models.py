# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures about models in the docs are those of the catalogue."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[3]


def test_the_sizes_are_those_of_the_manifests():
    text = (TOP / "docs/reference/sizing.md").read_text()
    sizes = dict(re.findall(r"^\| (\w+/[\w.-]+) \| ([\d.]+) GB \|$", text, re.M))
    assert len(sizes) == 2
    for model, size in sizes.items():
        files = yaml.safe_load((TOP / f"catalog/weights/{model}.yml").read_text())["files"]
        assert f"{sum(file['size'] for file in files.values()) / 1e9:.1f}" == size, model


def test_the_number_of_recipes_is_that_of_the_pins():
    release, number = re.search(
        r"(\d+\.\d+\.\d+) with (\d+) recipes", (TOP / "docs/operate/fetch-recipes.md").read_text()
    ).groups()
    pins = yaml.safe_load((TOP / f"catalog/upstream/{release}.yml").read_text())["files"]
    assert len([name for name in pins if name.startswith("recipes/models/")]) == int(number)
    assert release == max(path.stem for path in (TOP / "catalog/upstream").glob("*.yml"))


def test_what_was_tried_with_vllm_s_configuration_is_what_has_a_config():
    pins = yaml.safe_load((TOP / "catalog/upstream/0.33.0.yml").read_text())["files"]
    names = {name.removeprefix("recipes/models/").rpartition(".")[0] for name in pins}
    shapes = yaml.safe_load((TOP / "tests/parity/shapes.yml").read_text())
    tried = [name.partition("/")[2] for name in shapes if name in names]
    text = (TOP / "docs/operate/fetch-recipes.md").read_text()
    assert f"tried for {len(tried)} of them" in text
    assert not [name for name in tried if name not in text and not name.startswith("gpt-oss")]
