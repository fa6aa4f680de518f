# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that judge plans with the steps of vLLM's start up to its configuration (tools/vllm/real_engine.py)."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.model_config import excerpt_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_manifest

from tests.parity.real import NEWEST, RealParser, Refused
from tools.smoke_model import weights
from tools.vllm.fetch_vllm_release import CPU_BUILD, environment, sources

SHAPES = yaml.safe_load((Path(__file__).with_name("shapes.yml")).read_text(encoding="utf-8"))
SMOKE = "baremetal/gpt-oss-smoke"


class RealEngine(RealParser):
    """The configuration step of one release."""

    program = "real_engine.py"

    def judge(self, plan, hardware):
        """Raise Refused, with vLLM's words, where vLLM would not start as planned on these chips."""
        architecture = hardware.generation if hardware.stack == "rocm" else ""
        request = {
            "words": plan["argv"],
            "env": {name: value for name, value in plan["env"].items() if name.startswith("VLLM_")},
            "config": config_of(plan["model"]),
            "chip": {
                "stack": hardware.stack,
                "name": hardware.model,
                "count": max(1, len(plan["chips"])),
                "memory_mib": hardware.memory_mib or 65536,
                "capability": [int(part) for part in (hardware.compute_capability or "9.4").split(".")],
                "architecture": architecture,
            },
        }
        key = json.dumps(request, sort_keys=True)
        if key not in self.known:
            self.known[key] = self.ask(request)
        if "error" in self.known[key]:
            raise Refused(self.known[key]["error"])


def config_of(model):
    """Return the config.json of a model as far as it is known here."""
    if model == SMOKE:
        return weights.config()
    return {**((load_manifest(model) or {}).get("config") or {}), **SHAPES[model]["config"]}


def manifests(directory):
    """Write manifests of the models that the catalogue does not pin; return the directory."""
    for name, shape in SHAPES.items():
        if "weights" in shape:
            path = Path(directory, f"{name}.yml")
            path.parent.mkdir(parents=True, exist_ok=True)
            excerpt = excerpt_of(json.dumps(shape["config"]).encode())
            files = {"model.safetensors": {"size": shape["weights"], "sha256": "0" * 64}}
            document = {"repository": name, "revision": "0" * 40, "config": excerpt, "files": files}
            path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return directory


def start_engines():
    """Return the configuration step of each release. Raises FetchError where a release cannot be downloaded."""
    python, site = environment(), sources(NEWEST)
    return {CPU_BUILD: RealEngine(CPU_BUILD, python, site), NEWEST: RealEngine(NEWEST, python, site, site)}
