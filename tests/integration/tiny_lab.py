# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose hosts get the tiny models and a real vLLM from this machine, and an inventory for it."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.fakes.wheelhouse import ROOT, run_module
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import MIRROR, environment

ANSIBLE = ROOT / ".venv/bin/ansible-playbook"
TASKS = {"bert": "embedding", "idefics3": "multimodal"}


def recipe(name, *strategies):
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
        "compatible_strategies": ["single_node_tp", *strategies],
        "hardware_overrides": {"cpu": {"extra_env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}},
        **features,
    }


class TinyLab:
    """The lab with the environment ``lab`` (LAB_NAME and so on), and a site below ``place``.

    The mirror has the tiny models of these names, and what ``others`` has: directories by name.
    """

    def __init__(self, lab: dict[str, str], place: Path, names=tuple(FAMILIES), others=None) -> None:
        self.lab, self.place, self.names, self.others = lab, place, names, others or {}

    def run(self, *command):
        return subprocess.run(command, check=False, cwd=ROOT, env=self.lab, capture_output=True, text=True)

    def playbook(self, name, *words):
        """Run a playbook, which must succeed; return its output."""
        done = self.run(ANSIBLE, f"playbooks/{name}.yml", *words)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def mirror(self, *hosts):
        """Start the hosts and a server of wheels and weights that they reach; yield its address."""
        fetched(environment)
        root = self.place / "mirror"
        root.mkdir()
        (root / "wheels").symlink_to(MIRROR / "wheels")
        assert not run_module("wheel_index", root=str(root)).get("failed")
        for name in self.names:
            write(FAMILIES[name](), self.place / "models" / name)
        sources = {**{name: self.place / "models" / name for name in self.names}, **self.others}
        for name, source in sources.items():
            self._add_weights(name, Path(source), root)
        handler = functools.partial(SimpleHTTPRequestHandler, directory=str(root))
        subprocess.run([ROOT / "bin/lab", "up", *hosts], env=self.lab, check=True)
        server = ThreadingHTTPServer((f"{self.lab['LAB_SUBNET_PREFIX']}.1", 0), handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://{self.lab['LAB_SUBNET_PREFIX']}.1:{server.server_port}"
        finally:
            server.shutdown()
            subprocess.run([ROOT / "bin/lab", "down"], env=self.lab, check=True)

    def _add_weights(self, name, source, root):
        words = {"pin_model": f"tiny/{name}", "pin_source": str(source), "pin_dest": str(self.place / "manifests")}
        self.playbook("pin_weights", "-e", json.dumps(words))
        manifest = yaml.safe_load((self.place / "manifests" / "tiny" / f"{name}.yml").read_text())
        target = root / "weights" / "tiny" / name / manifest["revision"]
        target.parent.mkdir(parents=True)
        source.rename(target)

    def site(self, mirror, instances, strategies=(), **more):
        """Return the inventory of a site with these instances."""
        for name in self.names:
            path = self.place / "recipes" / "tiny" / f"{name}.yml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(recipe(name, *strategies)))
        variables = {
            "accelerator": "cpu",
            "accelerator_sysfs_root": "/usr/share/lab/sys",
            "vllm_release": "0.32.0",
            "vllm_wheel_index": f"{mirror}/simple/",
            "weights_sources": [f"{mirror}/weights"],
            "vllm_recipe_path": [str(self.place / "recipes")],
            "weights_manifest_path": [str(self.place / "manifests")],
            "vllm_instances": instances,
            "vllm_start_timeout": 900,
            **more,
        }
        site = self.place / "site"
        (site / "group_vars").mkdir(parents=True, exist_ok=True)
        (site / "hosts.yml").write_bytes((ROOT / "inventories/lab/hosts.yml").read_bytes())
        (site / "group_vars" / "inference.yml").write_text(yaml.safe_dump(variables))
        return site
