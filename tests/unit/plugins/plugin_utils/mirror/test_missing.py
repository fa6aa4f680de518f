# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError, HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.mirror.missing import MissingError, missing_of

UPSTREAM = "Qwen/Qwen3-32B"
OWN = {
    "model": {"model_id": "org/tiny", "context_length": 4096, "base_args": ["--tokenizer", "org/words"]},
    "variants": {"default": {"vram_minimum_gb": 1}},
}


class HostVars:
    """Stands for Ansible's hostvars: raw variables by host."""

    def __init__(self, hosts):
        self.hosts = hosts

    def raw_get(self, name):
        return {"inventory_hostname": name, "group_names": [], "groups": {"all": list(self.hosts)}, **self.hosts[name]}


@pytest.fixture
def site(tmp_path):
    """A site with a recipe of its own, and no directory of manifests yet."""
    path = tmp_path / "recipes" / "org" / "tiny.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(OWN))
    return tmp_path


def host(site, *recipes, **more):
    return {
        "accelerator": "h200",
        "accelerator_count": 8,
        "vllm_release": "0.33.0",
        "vllm_instances": {f"i{number}": {"recipe": name} for number, name in enumerate(recipes)},
        "vllm_recipe_path": [f"{site}/recipes"],
        "weights_manifest_path": [f"{site}/manifests"],
        **more,
    }


def missing(hosts):
    return missing_of(list(hosts), HostReader(HostVars(hosts), DataLoader())).as_dict()


def test_recipes_of_vllm_come_before_anything_is_planned(site):
    found = missing({"a": host(site, UPSTREAM, "org/tiny"), "b": host(site, UPSTREAM, accelerator="unknown")})
    assert found["recipes"] == [UPSTREAM] and found["models"] == []
    assert found["recipe_dest"] == f"{site}/recipes"
    assert found["directories"] == [f"{site}/recipes", f"{site}/manifests"]


def test_models_and_tokenizers_without_a_manifest_are_to_be_pinned_once(site):
    (site / "manifests").mkdir()
    found = missing({"a": host(site, "org/tiny"), "b": host(site, "org/tiny", accelerator_count=4)})
    assert found["recipes"] == [] and found["manifest_dest"] == f"{site}/manifests"
    assert [model["model"] for model in found["models"]] == ["org/tiny", "org/words"]
    # Of a tokenizer's repository, no weights.
    assert "*.json" in found["models"][1]["include"] and "include" not in found["models"][0]


def test_in_check_mode_a_directory_may_not_be_there_yet(site):
    found = missing({"a": host(site, "org/tiny")})
    assert found["recipes"] == [] and found["models"] == []


def test_a_host_that_needs_nothing_needs_no_directory():
    found = missing({"a": {**host("", "openai/gpt-oss-20b"), "vllm_recipe_path": [], "weights_manifest_path": []}})
    assert found["models"] == [] and found["directories"] == []


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"vllm_recipe_path": []}, MissingError, "vllm_recipe_path: found none, expected a directory to write to"),
        ({"vllm_instances": {}}, MissingError, "no host of target_hosts has vllm_instances"),
        (
            {"vllm_instances": {"i": {"recipe": "qwen/qwen3-32b"}}},
            FleetError,
            "nearest of vLLM's own: 'Qwen/Qwen3-32B'",
        ),
        ({"vllm_instances": "{{ nowhere }}"}, FleetError, "a: vllm_instances: .*nowhere"),
    ],
)
def test_bad_input_is_one_sentence(site, changes, error, message):
    (site / "manifests").mkdir()
    with pytest.raises(error, match=message):
        missing({"a": host(site, UPSTREAM, **changes)})


def test_manifests_need_a_directory_too(site):
    with pytest.raises(MissingError, match="weights_manifest_path: found none, expected a directory"):
        missing({"a": host(site, "org/tiny", weights_manifest_path=[])})


def test_one_run_writes_to_one_directory(site):
    hosts = {"a": host(site, UPSTREAM), "b": host(site, UPSTREAM, vllm_recipe_path=["/elsewhere"])}
    with pytest.raises(MissingError, match="recipes on a, /elsewhere on b; name hosts of one directory"):
        missing(hosts)
