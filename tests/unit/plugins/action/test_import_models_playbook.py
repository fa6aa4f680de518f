# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/import_models.yml as a whole, with a hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes.hub_server import Model, hubs_running
from tests.fakes.wheelhouse import ROOT

REVISION = "1" * 40
RECIPE = {
    "model": {"model_id": "org/tiny", "context_length": 4096, "base_args": []},
    "variants": {"default": {"vram_minimum_gb": 1}},
}
ANSIBLE = Path(sys.executable).parent / "ansible-playbook"


@pytest.fixture
def inventory(tmp_path):
    """A site that serves a recipe of its own, whose weights nothing pins."""
    path = tmp_path / "recipes" / "org" / "tiny.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(RECIPE))
    variables = {
        "accelerator": "h200",
        "vllm_recipe_path": ["{{ inventory_dir | dirname }}/recipes"],
        "weights_manifest_path": ["{{ inventory_dir | dirname }}/manifests"],
        "vllm_instances": {"chat": {"recipe": "org/tiny", "port": 8000}},
    }
    site = tmp_path / "site"
    site.mkdir()
    hosts = {"inference": {"hosts": {"gpu-1": {"accelerator_count": 1}}, "vars": variables}}
    (site / "hosts.yml").write_text(yaml.safe_dump(hosts))
    return site


def playbook(name, *words, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(ANSIBLE), f"playbooks/{name}", *words, "-e", json.dumps(variables)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "ANSIBLE_NOCOLOR": "1", "no_proxy": "127.0.0.1", "HF_TOKEN": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    changed = re.search(r"changed=(\d+)", said)
    return done.returncode, said, int(changed[1]) if changed else None


def test_a_user_names_a_recipe_and_the_playbook_gets_the_rest(inventory, tmp_path):
    site = ["-i", str(inventory)]
    token = tmp_path / "token"
    token.write_text("hf_a")
    token.chmod(0o600)
    with hubs_running() as hubs:
        files = {"model.safetensors": b"weights" * 1000, "config.json": b"{}"}
        hubs.hub["org/tiny"] = Model({REVISION: files}, {"main": REVISION}, gated=True)
        hubs.tokens.add("hf_a")
        source = f"hub:{hubs.url}"
        status, said, _changed = playbook("import_models.yml", *site, import_source=source)
        assert status != 0 and "the model is gated and no token was given" in said, said
        status, said, _changed = playbook(
            "import_models.yml", *site, import_source=source, import_token_file=str(token)
        )
        assert status == 0 and "manifests: org/tiny" in said, said
        manifest = yaml.safe_load((tmp_path / "manifests" / "org" / "tiny.yml").read_text())
        assert manifest["revision"] == REVISION
    # The hub is gone: nothing is asked again.
    status, said, changed = playbook("import_models.yml", *site, import_source=source)
    assert (status, changed) == (0, 0), said
    assert "recipes: all were there" in said and "manifests: all were there" in said


def test_check_mode_writes_nothing(inventory, tmp_path):
    status, said, _changed = playbook("import_models.yml", "-i", str(inventory), "--check")
    assert status == 0 and not (tmp_path / "manifests").exists(), said
