# SPDX-License-Identifier: GPL-3.0-or-later
"""A wave starts the replicas that scale has stopped: the role's own tasks, with a stand-in for the gateway's module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.long

TOP = Path(__file__).resolve().parents[2]
TASKS = TOP / "roles/rollout/tasks/start_replicas.yml"
ANSIBLE = TOP / ".venv/bin/ansible-playbook"
# What the gateways report: gw-a decides, one host is none of the inventory's, and gw-b decides about nothing.
STOPPED = {
    "chat": {"idle": ["gpu-b--chat", "gpu-c--chat"], "hosts": ["gpu-b", "gpu-c"]},
    "odd": {"idle": ["gpu-c--odd"], "hosts": ["localhost2", "{{ lookup('pipe', 'touch EVIL') }}", "gpu-c"]},
}
MODULE = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
import json
module = AnsibleModule({{"servers": {{"type": "list"}}, "state": {{}}, "owner": {{}}, "wait": {{"type": "float"}}}})
asked = {{key: value for key, value in module.params.items() if value}}
with open({log!r}, "a") as file:
    file.write(json.dumps(["gateway", asked]) + "\\n")
module.exit_json(changed=False, **({{}} if module.params["state"] else {{"scale": {scale}}}))
"""


def run(top: Path, scales: dict[str, object], *words: str) -> list[list[object]]:
    """Run the tasks of a wave with these reports of gateways; return what gateways and hosts were asked."""
    log = top / "log"
    log.touch()
    program = top / "vllm-scale.py"
    program.write_text(
        f"import os, sys\nopen({str(log)!r}, 'a').write('[\"host\", \"%s\"]\\n' % sys.argv[1])\nprint('started x')"
    )
    text = (
        TASKS.read_text()
        .replace("/usr/local/lib/vllm-scale.py", str(program))
        .replace("/usr/bin/python3", sys.executable)
    )
    tasks = yaml.safe_load(text.replace("baremetal.inference.gateway_server", "gateway_server"))
    (top / "library").mkdir()
    (top / "library/gateway_server.py").write_text(MODULE.format(log=str(log), scale=f"{scales!r}['chosen']"))
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    hosts = dict.fromkeys(("gpu-a", "gpu-b", "gpu-c", "gw-a", "wave-1"), local)
    hosts["localhost"] = {**local, "rollout_plan": {"gateways": ["gw-a"], "id": "r1"}}
    (top / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    play = {"hosts": "wave-1", "gather_facts": False, "tasks": tasks, "vars": {"__rollout_start_wait": 9}}
    (top / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    done = subprocess.run(
        [ANSIBLE, "-i", top / "hosts.json", top / "play.yml", *words],
        cwd=top,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_wave_starts_what_scale_has_stopped_on_hosts_of_the_inventory_and_waits(tmp_path: Path) -> None:
    found = run(tmp_path, {"chosen": STOPPED})
    assert found[:3] == [["gateway", {}], ["host", "--start"], ["host", "--start"]]
    wanted = {
        "servers": ["gpu-b--chat", "gpu-c--chat", "gpu-c--odd"],
        "state": "ready",
        "owner": "rollout:r1",
        "wait": 9,
    }
    assert found[3:] == [["gateway", wanted]]
    assert not (tmp_path / "EVIL").exists()


@pytest.mark.parametrize("scale", [{}, {"chat": {"idle": [], "hosts": []}}])
def test_a_wave_without_such_replicas_asks_nobody(tmp_path: Path, scale: dict[str, object]) -> None:
    assert run(tmp_path, {"chosen": scale}) == [["gateway", {}]]
