# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import parse_lock
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import Alike, Fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.mirror.needs import (
    Needs,
    NeedsError,
    add_evaluation,
    add_fleet,
    add_models,
    add_provisioner,
    add_release,
    missing_wheel_bytes,
    plan_from_origin,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator

SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
    "registry": "mirror:5000",
}
MANIFEST = "repository: openai/gpt-oss-20b\nrevision: '%s'\nfiles: {a.safetensors: {size: 1, sha256: '%s'}}\n"


def accelerator(model, count=8) -> Accelerator:
    return declared_accelerator(load_catalogue(), model, count, None, {})


def fleet(model="h200", release="0.33.0", recipe="openai/gpt-oss-20b", hosts=("h1", "h2"), **more):
    settings = {"instances": {"chat": {"recipe": recipe}}, "release": release, **SITE, **more}
    plans = plan_from_origin(hosts[0], accelerator(model, 1 if model == "cpu" else 8), settings)
    return Fleet([Alike(list(hosts), plans, {"vllm_weights_manifest_path": more.get("weights_manifest_path", [])})])


def needs_of(*fleets):
    needs = Needs()
    for each in fleets:
        add_fleet(needs, each)
    return needs.as_dict()


def test_a_fleet_of_containers_needs_weights_encodings_and_the_image_as_it_is_published():
    found = needs_of(fleet())
    assert [model["repository"] for model in found["models"]] == ["openai/gpt-oss-20b"]
    assert found["images"] == ["vllm/vllm-openai:v0.33.0"]
    assert found["locks"] == [] and len(found["encodings"]) == 2
    assert set(found["holds"]) == {"weights", "encodings"}
    assert sum(len(files) for files in found["holds"]["weights"].values()) == len(found["models"][0]["files"])


def test_a_host_with_a_virtual_environment_needs_its_lock():
    found = needs_of(fleet("cpu", "0.32.0", "baremetal/gpt-oss-smoke"))
    assert found["images"] == []
    assert [lock.rpartition("/")[2] for lock in found["locks"]] == ["0.32.0-cpu-cp311-x86_64.txt"]
    assert found["wheels_bytes"] == 4 * 1024**3


def test_two_groups_of_hosts_need_what_each_needs_once():
    found = needs_of(fleet(), fleet(hosts=("h3",)), fleet("mi300x", hosts=("h4",)))
    assert found["images"] == ["vllm/vllm-openai-rocm:v0.33.0", "vllm/vllm-openai:v0.33.0"]
    assert len(found["models"]) == 1


def test_the_sites_own_manifest_counts_and_both_revisions_are_needed(tmp_path):
    (tmp_path / "openai").mkdir()
    (tmp_path / "openai/gpt-oss-20b.yml").write_text(MANIFEST % ("1" * 40, "0" * 64))
    needs = Needs()
    add_fleet(needs, fleet(weights_manifest_path=[str(tmp_path)]))
    add_fleet(needs, fleet())
    revisions = {model["revision"] for model in needs.as_dict()["models"]}
    assert len(revisions) == 2 and "1" * 40 in revisions


def test_two_manifests_of_one_revision_that_differ_are_refused(tmp_path):
    needs = Needs()
    for digit in "01":
        (tmp_path / digit / "openai").mkdir(parents=True)
        (tmp_path / digit / "openai/gpt-oss-20b.yml").write_text(MANIFEST % ("1" * 40, digit * 64))
    add_models(needs, ["openai/gpt-oss-20b"], [str(tmp_path / "0")])
    with pytest.raises(NeedsError, match="two manifests of one revision differ"):
        add_models(needs, ["openai/gpt-oss-20b"], [str(tmp_path / "1")])


def test_weights_that_nothing_pins_are_named_with_their_hosts():
    found = fleet()
    plan = found.groups[0].plans["chat"]
    found.groups[0].plans["chat"]["models"] = [*plan["models"], "acme/unpinned"]
    with pytest.raises(NeedsError, match=r"h1, h2: no manifest pins the weights of acme/unpinned; .*pin_weights\.yml"):
        add_fleet(Needs(), found)


def test_releases_and_models_by_name():
    needs = Needs()
    add_release(needs, "0.23.0", ["cann"], [])
    add_release(needs, "0.33.0", [], [])
    add_models(needs, ["openai/gpt-oss-120b"], [])
    found = needs.as_dict()
    assert "quay.io/ascend/vllm-ascend:v0.23.0-a3" in found["images"]
    assert {"vllm/vllm-openai:v0.33.0", "vllm/vllm-openai-rocm:v0.33.0"} < set(found["images"])
    assert found["encodings"] and found["models"][0]["repository"] == "openai/gpt-oss-120b"


def test_an_evaluation_needs_the_locks_of_its_tools():
    needs = Needs()
    add_evaluation(needs)
    names = [lock.rsplit("/", 1)[-1] for lock in needs.as_dict()["locks"]]
    assert len(names) == 12 and all(name.endswith(".txt") for name in names)
    assert {name.rsplit("-", 3)[0] for name in names} == {"lm-eval", "gpt-oss"}


def test_a_provisioner_needs_ironic_for_each_debian_and_the_agent_of_its_ramdisk():
    needs = Needs()
    add_provisioner(needs)
    locks = [Path(lock) for lock in needs.as_dict()["locks"]]
    assert [lock.name for lock in locks] == ["agent.txt", "ironic-cp311-x86_64.txt", "ironic-cp313-x86_64.txt"]
    # What fetches them reads the target of each.
    assert all(parse_lock(lock.read_text()).target for lock in locks)


def test_an_unknown_stack_is_told_the_nearest():
    with pytest.raises(NeedsError, match=r"bundle_stacks: release 0\.33\.0 has no stack 'cude'; nearest: 'cuda'"):
        add_release(Needs(), "0.33.0", ["cude"], [])


def test_a_complete_lock_needs_no_more_room(tmp_path):
    locks = {"/locks/a.txt": 5, "/locks/b.txt": 7}
    assert missing_wheel_bytes(locks, str(tmp_path)) == 12
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/.a.fetched.json").touch()
    assert missing_wheel_bytes(locks, str(tmp_path)) == 7


RECIPE = """
meta: {title: x}
model: {model_id: acme/large, base_args: ["--load-format", "mistral", "--tokenizer", "acme/words"]}
variants: {default: {precision: bf16, vram_minimum_gb: 10}}
"""


def test_models_without_a_manifest_are_reported_with_what_pins_them(tmp_path):
    (tmp_path / "recipes/acme").mkdir(parents=True)
    (tmp_path / "recipes/acme/large.yaml").write_text(RECIPE)
    needs = Needs(unpinned={}, pin_dest=str(tmp_path / "manifests"))
    add_fleet(needs, fleet(recipe="acme/large", recipe_path=[str(tmp_path / "recipes")]))
    add_models(needs, ["acme/other@" + "b" * 40], [])
    large, words, other = needs.as_dict()["unpinned"]
    assert large == {"model": "acme/large", "revision": "", "load_format": "mistral"}
    assert words["model"] == "acme/words" and "*.json" in words["include"]
    assert other == {"model": "acme/other", "revision": "b" * 40}


def test_manifests_that_the_run_has_made_are_found(tmp_path):
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme/other.yml").write_text(
        MANIFEST.replace("openai/gpt-oss-20b", "acme/other") % ("a" * 40, "0" * 64)
    )
    needs = Needs(unpinned={}, pin_dest=str(tmp_path))
    add_models(needs, ["acme/other"], [])
    assert needs.unpinned == {} and [each["repository"] for each in needs.as_dict()["models"]] == ["acme/other"]
