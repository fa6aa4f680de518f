# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils._plan import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils._serving import (
    CATALOG,
    find,
    load_recipe,
    load_release,
)

RECIPES = sorted(f"{path.parent.name}/{path.stem}" for path in (CATALOG / "recipes").rglob("*.yaml"))
RELEASES = sorted(path.stem for path in (CATALOG / "releases").glob("*.yml"))


@pytest.fixture
def site(tmp_path):
    """A site's directory, and a way to put a recipe into it."""
    (tmp_path / "org").mkdir()

    def write(text):
        (tmp_path / "org/model.yaml").write_text(text)
        return [str(tmp_path)]

    return write


@pytest.mark.parametrize("name", RECIPES)
def test_bundled_recipe_loads(name):
    assert load_recipe(name)["model"]["model_id"] == name


@pytest.mark.parametrize("name", RELEASES)
def test_bundled_release_loads_with_its_locks(name):
    for stack in load_release(name)["stacks"].values():
        assert stack["runtime"] != "venv" or len(stack["requirements_sha256"]) == 64


def test_the_site_s_own_file_comes_first(site):
    directories = site("model: {model_id: theirs}\n")
    assert load_recipe("org/model", directories)["model"]["model_id"] == "theirs"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "recipes",
            "baremetal/gpt-oss-smok",
            "no recipe .* nearest: 'baremetal/gpt-oss-smoke'",
        ),
        ("releases", "0.32", "no release '0.32' .* nearest: '0.32.0'"),
        ("weights", "openai/gpt-oss-20", "no manifest of weights 'openai/gpt-oss-20' .* nearest: 'openai/gpt-oss-20b'"),
    ],
)
def test_unknown_name_gets_the_nearest(kind, name, message):
    with pytest.raises(PlanError, match=message):
        find(kind, name, (".yaml", ".yml"), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {model_id: a, base_arg: []}\n", "unknown key 'model.base_arg'; nearest: 'base_args'"),
        ("model: {model_id: a}\nvariant: {}\n", "unknown key 'variant'; nearest: 'variants'"),
        ("meta: {}\n", "'model.model_id' is missing"),
        ("- a\n", "found list, expected a mapping"),
        ("a: [\n", "cannot be read"),
        ("model: {model_id: a}\nstrategy_overrides: {single_node_tp: {tp: 1}}\n", "strategy_overrides is known, but"),
        ("model: {model_id: a}\nfeatures: {x: {modes: {}}}\n", "features.x.modes is known, but"),
        ("model: {model_id: a}\nvariants: {default: {tp: 2}}\n", "variants.default.tp is known, but"),
    ],
)
def test_malformed_recipe_names_file_and_key(site, text, message):
    directories = site(text)
    with pytest.raises(PlanError, match=message) as caught:
        load_recipe("org/model", directories)
    assert "org/model.yaml" in str(caught.value)


def test_release_whose_lock_is_missing(tmp_path):
    (tmp_path / "x.yml").write_text("vllm: x\nstacks: {cpu: {requirements: none.txt}}\n")
    with pytest.raises(PlanError, match=r"requirements/none.txt: the release names this lock"):
        load_release("x", [str(tmp_path)])


def test_release_without_stacks(tmp_path):
    (tmp_path / "x.yml").write_text("vllm: x\n")
    with pytest.raises(PlanError, match="'stacks' is missing"):
        load_release("x", [str(tmp_path)])
