# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five architectures from their weights to an answer: pinned, fetched, served and asked by site.yml on a lab host."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tests.fakes.wheelhouse import ROOT, run_module
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import MIRROR, environment

pytestmark = [pytest.mark.long, pytest.mark.lab]

NAME, PREFIX = os.environ.get("LAB_NAME", "tiny"), os.environ.get("LAB_SUBNET_PREFIX", "10.87.244")
HOME = os.environ.get("LAB_HOME", str(ROOT / ".lab"))
LAB = {**os.environ, "LAB_HOME": HOME, "LAB_NAME": NAME, "LAB_SUBNET_PREFIX": PREFIX, "ANSIBLE_NOCOLOR": "1"}
ANSIBLE = ROOT / ".venv/bin/ansible-playbook"
TASKS = {"bert": "embedding", "idefics3": "multimodal"}
# As in inventories/lab: one process instead of three, because several start on one machine.
SMALL = {
    "args": {"kv-cache-memory-bytes": "192M", "distributed-executor-backend": "uni"},
    "env": {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
}
CHAT = ["chat", "chat_stream", "responses", "completions"]
CHECKS = {
    "llama": CHAT,
    "qwen3-moe": [*CHAT, "tool_call"],
    "deepseek-v2": CHAT,
    "idefics3": [*CHAT, "image"],
    "bert": ["embedding"],
}


def recipe(name):
    """Return the recipe of a tiny model."""
    features = {}
    if FAMILIES[name]().arguments:
        features = {"features": {"tool_calling": {"args": list(FAMILIES[name]().arguments)}}}
    return {
        "meta": {"tasks": [TASKS.get(name, "text")]},
        "model": {
            "model_id": f"tiny/{name}",
            "base_args": ["--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", "4"],
        },
        "variants": {"default": {"precision": "bf16", "vram_minimum_gb": 1}},
        "compatible_strategies": ["single_node_tp"],
        "hardware_overrides": {"cpu": {"extra_env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}},
        **features,
    }


def playbook(name, *words):
    done = run(ANSIBLE, f"playbooks/{name}.yml", *words)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    return done.stdout


def run(*command):
    return subprocess.run(command, check=False, cwd=ROOT, env=LAB, capture_output=True, text=True)


@pytest.fixture
def mirror(tmp_path):
    """A server of wheels and weights that the lab host reaches; returns its address."""
    fetched(environment)
    root = tmp_path / "mirror"
    root.mkdir()
    (root / "wheels").symlink_to(MIRROR / "wheels")
    assert not run_module("wheel_index", root=str(root)).get("failed")
    for name, family in FAMILIES.items():
        source = tmp_path / "models" / name
        write(family(), source)
        words = {"pin_model": f"tiny/{name}", "pin_source": str(source), "pin_dest": str(tmp_path / "manifests")}
        playbook("pin_weights", "-e", json.dumps(words))
        manifest = yaml.safe_load((tmp_path / "manifests" / "tiny" / f"{name}.yml").read_text())
        target = root / "weights" / "tiny" / name / manifest["revision"]
        target.parent.mkdir(parents=True)
        source.rename(target)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(root))
    subprocess.run([ROOT / "bin/lab", "up", "cpu-12"], env=LAB, check=True)
    server = ThreadingHTTPServer((f"{PREFIX}.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{PREFIX}.1:{server.server_port}"
    finally:
        server.shutdown()
        subprocess.run([ROOT / "bin/lab", "down"], env=LAB, check=True)


@pytest.fixture
def inventory(tmp_path, mirror):
    """The inventory of a site that serves all of them on one host."""
    for name in FAMILIES:
        path = tmp_path / "recipes" / "tiny" / f"{name}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(recipe(name)))
    ports = dict(zip(FAMILIES, range(8001, 8100)))
    variables = {
        "accelerator": "cpu",
        "accelerator_sysfs_root": "/usr/share/lab/sys",
        "vllm_release": "0.32.0",
        "vllm_wheel_index": f"{mirror}/simple/",
        "weights_sources": [f"{mirror}/weights"],
        "vllm_recipe_path": [str(tmp_path / "recipes")],
        "weights_manifest_path": [str(tmp_path / "manifests")],
        "vllm_instances": {name: {"recipe": f"tiny/{name}", "port": port, **SMALL} for name, port in ports.items()},
        "vllm_start_timeout": 900,
    }
    site = tmp_path / "site"
    (site / "group_vars").mkdir(parents=True)
    (site / "hosts.yml").write_bytes((ROOT / "inventories/lab/hosts.yml").read_bytes())
    (site / "group_vars" / "inference.yml").write_text(yaml.safe_dump(variables))
    return site


def test_five_architectures_are_served_and_asked_what_fits_them(inventory):
    site = ["-i", str(inventory), "-l", "cpu-12"]
    playbook("site", *site)
    assert "changed=0" in playbook("site", *site).splitlines()[-2]
    document = json.loads(run(sys.executable, "tools/verify.py", *site).stdout)
    assert document["ok"], document
    asked = {name: [row["name"] for row in document["checks"] if row["instance"] == name] for name in FAMILIES}
    assert asked == {name: ["ready", "models", *checks] for name, checks in CHECKS.items()}
