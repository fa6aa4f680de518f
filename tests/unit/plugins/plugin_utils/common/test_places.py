# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import (
    COLLECTION,
    DIRECTORIES,
    collection_version,
    misplaced,
)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "inventory" / "recipes").mkdir(parents=True)
    (tmp_path / "inventory" / "hosts.yml").touch()
    (tmp_path / "recipes").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_in_an_inventory_is_named_with_a_better_place(site, name):
    directory = f"{site}/inventory/recipes"
    said = name.replace("vllm_weights", "weights")
    assert misplaced({name: [directory]}, [f"{site}/inventory"]) == [
        f"{said}: {directory} lies in the inventory {site}/inventory, so Ansible reads its files as inventories; "
        "move it beside that directory: {{ inventory_dir | dirname }}/recipes"
    ]
    assert len(misplaced({name: directory}, [f"{site}/inventory"])) == 1


def test_a_directory_elsewhere_is_no_matter(site):
    variables = {"vllm_recipe_path": [f"{site}/recipes", f"{site}/gone"], "vllm_release_path": None}
    assert misplaced(variables, [f"{site}/inventory"]) == []
    # Beside an inventory that is a file, or a list of hosts, nothing else is read.
    inside = {"vllm_recipe_path": [f"{site}/inventory/recipes"]}
    assert misplaced(inside, [f"{site}/inventory/hosts.yml", "localhost,"]) == []


def test_the_version_is_that_of_the_installed_collection_or_of_the_checkout(tmp_path):
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"collection_info": {"version": "9.8.7"}}))
    assert collection_version(tmp_path) == "9.8.7"
    assert collection_version() == yaml.safe_load((COLLECTION / "galaxy.yml").read_text())["version"]
