# SPDX-License-Identifier: GPL-3.0-or-later
"""Five architectures from their weights to an answer: pinned, fetched, served and asked by site.yml on a lab host."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.fakes.wheelhouse import ROOT
from tests.integration.tiny_lab import TinyLab
from tools.tiny_models.families import FAMILIES

pytestmark = [pytest.mark.long, pytest.mark.lab]

LAB = {
    **os.environ,
    "LAB_HOME": os.environ.get("LAB_HOME", str(ROOT / ".lab")),
    "LAB_NAME": os.environ.get("LAB_NAME", "tiny"),
    "LAB_SUBNET_PREFIX": os.environ.get("LAB_SUBNET_PREFIX", "10.87.244"),
    "ANSIBLE_NOCOLOR": "1",
}
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


def test_five_architectures_are_served_and_asked_what_fits_them(tmp_path):
    lab = TinyLab(LAB, tmp_path)
    ports = dict(zip(FAMILIES, range(8001, 8100)))
    instances = {name: {"recipe": f"tiny/{name}", "port": port, **SMALL} for name, port in ports.items()}
    with lab.mirror("cpu-12") as mirror:
        site = ["-i", str(lab.site(mirror, instances)), "-l", "cpu-12"]
        lab.playbook("site", *site)
        assert "changed=0" in lab.playbook("site", *site).splitlines()[-2]
        document = json.loads(lab.run(sys.executable, "tools/verify.py", *site).stdout)
    assert document["ok"], document
    asked = {name: [row["name"] for row in document["checks"] if row["instance"] == name] for name in FAMILIES}
    assert asked == {name: ["ready", "models", *checks] for name, checks in CHECKS.items()}
