# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import parse_manifest

from tests.fakes.hub_server import Model, hubs_running
from tests.fakes.wheelhouse import ROOT, run_module

COMMIT, NEWER = "c" * 40, "d" * 40
FILES = {"model.safetensors": b"1" * 1000, "config.json": b"{}", "README.md": b"x"}


@pytest.fixture
def hubs(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with hubs_running() as running:
        running.hub["org/name"] = Model({COMMIT: FILES, NEWER: {**FILES, "x.json": b"[1]"}}, {"main": COMMIT})
        yield running


@pytest.fixture
def pin(hubs, tmp_path):
    def run(**arguments):
        defaults = {"model": "org/name", "source": f"hub:{hubs.url}", "dest": str(tmp_path / "manifests")}
        return run_module("weights_manifest", **{**defaults, "modelscope_endpoint": hubs.url, **arguments})

    return run


def files_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_manifest_is_written_once(pin, hubs, tmp_path):
    planned = pin(_ansible_check_mode=True, _ansible_diff=True)
    assert planned["changed"]
    assert not (tmp_path / "manifests").exists()
    first = pin()
    path = tmp_path / "manifests/org/name.yml"
    assert first["diff"] == planned["diff"]
    assert first["diff"]["after"] == path.read_text()
    assert (first["manifest"], first["files"], first["size"]) == (str(path), 2, 1002)
    assert (first["revision"], first["previous_revision"], first["derived"]) == (COMMIT, "", False)
    assert first["left_out"] == ["README.md"]
    assert parse_manifest(yaml.safe_load(path.read_text())).revision == COMMIT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    inode = path.stat().st_ino
    again = pin()
    assert not again["changed"]
    assert again["diff"]["before"] == again["diff"]["after"]
    assert path.stat().st_ino == inode
    assert files_below(tmp_path / "manifests") == ["org", "org/name.yml"]


def test_a_moved_branch_shows_the_difference(pin, hubs, tmp_path):
    pin()
    hubs.hub["org/name"].branches["main"] = NEWER
    moved = pin(_ansible_check_mode=True)
    assert moved["changed"]
    assert (moved["revision"], moved["previous_revision"]) == (NEWER, COMMIT)
    added = set(moved["diff"]["after"].splitlines()) - set(moved["diff"]["before"].splitlines())
    assert {line.strip().partition(":")[0] for line in added} == {"revision", "x.json", "size", "sha256"}
    assert COMMIT in (tmp_path / "manifests/org/name.yml").read_text()


def test_what_is_known_of_modelscope_stays_with_the_same_files(pin, hubs, tmp_path):
    hubs.modelscope["mirror/name"] = Model({COMMIT: FILES}, {"master": COMMIT})
    assert "  repository: mirror/name\n" in pin(modelscope_model="mirror/name")["diff"]["after"]
    again = pin()
    assert (again["changed"], again.get("warnings", [])) == (False, [])
    hubs.hub["org/name"].branches["main"] = NEWER
    moved = pin()
    assert "modelscope" not in moved["diff"]["after"]
    assert "the name on ModelScope was removed" in str(moved["warnings"])


def test_a_token_is_nowhere(pin, hubs, tmp_path, monkeypatch):
    hubs.tokens = {"hf_secret"}
    hubs.hub["org/name"].gated = True
    refused = pin()
    assert refused["failed"]
    assert refused["msg"].endswith("name its file in token_file or set HF_TOKEN")
    assert not (tmp_path / "manifests").exists()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "hf_secret" not in json.dumps(pin())


def test_a_directory_of_manifests_that_is_a_file(pin, tmp_path):
    (tmp_path / "manifests").write_text("")
    refused = pin()
    assert refused["failed"]
    assert str(tmp_path / "manifests") in refused["msg"]


def test_a_manifest_that_somebody_wrote_by_hand(pin, tmp_path):
    path = tmp_path / "manifests/org/name.yml"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff no yaml: [")
    assert pin()["changed"]
    assert parse_manifest(yaml.safe_load(path.read_text())).revision == COMMIT


def test_the_playbook(hubs, tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "ansible", "playbook", "playbooks/pin_weights.yml", "-e", "pin_model=org/name"]
        command += ["-e", f"pin_source=hub:{hubs.url}", "-e", f"pin_dest={tmp_path}", *arguments]
        settings = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
        environment = {**os.environ, **settings, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    done = run("-e", '{"pin_exclude": ["x*"]}')
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        f"manifest: {tmp_path}/org/name.yml",
        f"revision: {COMMIT}",
        "files: 2, 0.0 GB",
        "left out: README.md",
    ):
        assert f"'{line}'" in done.stdout
    assert parse_manifest(yaml.safe_load((tmp_path / "org/name.yml").read_text())).revision == COMMIT
    hubs.hub["org/name"].branches["main"] = NEWER
    moved = run("--check", "--diff")
    assert f"-revision: {COMMIT}\n+revision: {NEWER}" in moved.stdout
    assert f"revision: {NEWER}, before {COMMIT}" in " ".join(moved.stdout.split())


RECIPE = """
meta: {title: x, difficulty: of no use here}
model: {model_id: org/name, base_args: ["--tokenizer_mode", "mistral", "--load_format", "mistral"]}
"""


def test_the_playbook_pins_the_format_that_the_recipe_reads(hubs, tmp_path):
    files = {**FILES, "consolidated.safetensors": b"1" * 1000, "model.safetensors.index.json": b'{"weight_map": {}}'}
    hubs.hub["org/name"].commits[COMMIT] = files
    (tmp_path / "recipes/org").mkdir(parents=True)
    (tmp_path / "recipes/org/name.yaml").write_text(RECIPE)

    def run(**variables):
        variables = {"pin_model": "org/name", "pin_source": f"hub:{hubs.url}", "pin_dest": str(tmp_path), **variables}
        command = [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "playbooks/pin_weights.yml",
            "-e",
            json.dumps(variables),
        ]
        settings = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
        environment = {**os.environ, **settings, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return set(yaml.safe_load((tmp_path / "org/name.yml").read_text())["files"])

    recipes = [str(tmp_path / "recipes")]
    assert run(vllm_recipe_path=recipes) == {"config.json", "consolidated.safetensors"}
    assert run() == {"config.json", "model.safetensors", "model.safetensors.index.json"}
    assert run(vllm_recipe_path=recipes, pin_load_format="both") == set(files) - {"README.md"}


def test_a_second_revision_beside_the_first(hubs, pin, tmp_path):
    pin()
    hubs.hub["org/name"].branches["main"] = NEWER
    assert pin(beside=True)["manifest"] == str(tmp_path / f"manifests/org/name@{NEWER}.yml")
    assert yaml.safe_load((tmp_path / "manifests/org/name.yml").read_text())["revision"] == COMMIT
    assert not pin(beside=True)["changed"]
