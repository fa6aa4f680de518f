# SPDX-License-Identifier: GPL-3.0-or-later
"""A command of docs/operate/common-tasks.md as it is written, on this machine as a stand-in for a GPU server, timed.

tests/integration/test_common_tasks_lab.py runs the others, on a lab.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.sysfs import lines, write_sysfs
from tests.unit.docs.test_common_tasks import COMMAND, SECTIONS

TOP = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long
TASK = "What changed since yesterday"


class Site:
    """An inventory with one server: this machine, with a PCI tree of its own."""

    def __init__(self, top):
        self.top, self.inventory = top, top / "inventory"
        self.inventory.mkdir()
        cache = {"plugin": "baremetal.inference.accelerators", "discovery_cache": str(top / "discovery.json")}
        (self.inventory / "z-accelerators.yml").write_text(json.dumps(cache))

    def declare(self, chips, port, **hardware):
        """Write a server that has this number of H200 on PCI, and an instance on this port."""
        tree = self.top / f"tree-{chips}"
        write_sysfs(tree, lines("10de:2335", chips), nodes=2)
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "accelerator_sysfs_root": str(tree),
            "vllm_release": "0.33.0",
            "vllm_instances": {"chat": {"recipe": "openai/gpt-oss-120b", "replicas": 1, "port": port}},
            "weights_sources": ["hub"],
            **hardware,
        }
        (self.inventory / "hosts.json").write_text(json.dumps({"inference": {"hosts": {"gpu-a-01": host}}}))

    def run(self, *without):
        """Run the page's command, without some of its words; return the output and the seconds."""
        (text,) = COMMAND.findall(SECTIONS[TASK])
        text = text.replace("inventories/SITE", str(self.inventory)).replace(
            "/srv/rendered", str(self.top / "rendered")
        )
        words = [word for word in shlex.split(text) if word not in without]
        words[0] = str(Path(sys.executable).with_name(words[0]))
        begin = time.monotonic()
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000"}
        done = subprocess.run(words, check=False, cwd=TOP, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, time.monotonic() - begin


@pytest.mark.parametrize("hardware", [{}, {"accelerator": "h200", "accelerator_count": 8}], ids=["found", "declared"])
def test_what_changed_since_yesterday(tmp_path, capsys, hardware):
    site = Site(tmp_path)
    site.declare(8, 8000, **hardware)
    # The first night: render plans for the chips that discover found in the same run.
    assert "1 instance of 1 host" in site.run("--check", "--diff")[0]
    same, _seconds = site.run()
    assert "changed=1" not in same, same
    site.declare(7, 8001, **hardware)
    changed, seconds = site.run()
    assert "h200 x 8 -> h200 x 7" in changed and "+port: 8001" in changed, changed
    assert site.run()[0].count("h200 x 8 -> h200 x 7") == changed.count("h200 x 8 -> h200 x 7"), (
        "a check stores nothing"
    )
    with capsys.disabled():
        print(f"\n{TASK}: {seconds:.0f} s for one host")
