# SPDX-License-Identifier: GPL-3.0-or-later
"""The models of tools/real_models from the catalogue to an answer: site.yml serves and asks them on a lab host."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.fakes.wheelhouse import ROOT
from tests.integration.test_tiny_site import CHAT, SMALL
from tests.integration.tiny_lab import TinyLab
from tools.real_models.build import SOURCES, WHEELS, build

pytestmark = [pytest.mark.long, pytest.mark.lab]

LAB = {
    **os.environ,
    "LAB_HOME": os.environ.get("LAB_HOME", str(ROOT / ".lab")),
    "LAB_NAME": os.environ.get("LAB_NAME", "real"),
    "LAB_SUBNET_PREFIX": os.environ.get("LAB_SUBNET_PREFIX", "10.87.240"),
    "ANSIBLE_NOCOLOR": "1",
}


def one_core(number):
    """Return the settings for one thread: several wait for each other on a busy machine, at one token a second."""
    return {**SMALL, "env": {**SMALL["env"], "VLLM_CPU_OMP_THREADS_BIND": str(number % (os.cpu_count() or 1))}}


def test_real_weights_are_served_from_the_catalogue(tmp_path):
    lab = TinyLab(LAB, tmp_path, names=())
    instances = {
        "real": {"recipe": "real/SmolLM2-135M-Instruct", "port": 8001, **one_core(0)},
        "embeddings": {"recipe": "real/all-MiniLM-L6-v2", "port": 8002, **one_core(1)},
    }
    with lab.mirror("cpu-12") as mirror:
        for name in SOURCES:
            build(name, tmp_path / "mirror", WHEELS)
        catalogue = {"vllm_recipe_path": [], "weights_manifest_path": []}
        site = ["-i", str(lab.site(mirror, instances, **catalogue)), "-l", "cpu-12"]
        lab.playbook("site", *site)
        assert "changed=0" in lab.playbook("site", *site).splitlines()[-2]
        document = json.loads(lab.run(sys.executable, "tools/verify.py", *site).stdout)
    assert document["ok"], document
    asked = {name: [row["name"] for row in document["checks"] if row["instance"] == name] for name in instances}
    assert asked == {"real": ["ready", "models", *CHAT], "embeddings": ["ready", "models", "embedding"]}
