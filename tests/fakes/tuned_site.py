# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of the collection in which playbooks/tune.yml finds a host that answers with made figures.

The playbook, its tasks and actions, the lock and the plans are the real ones. What touches a host is replaced: the role
vllm writes down which arguments it was given, and the benchmark's speed follows from them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "openai/gpt-oss-20b"
DETECTED = {"model": "h200", "stack": "cuda", "generation": "hopper", "vendor": "nvidia", "count": 1,
            "driver_version": "580.159.04", "devices": [], "memory_mib": 143771}  # fmt: skip
GOOD = "0123456789ab"

# Every module answers from the files of the host; `log` is what the tests read.
MODULE = """#!/usr/bin/python
import json, os, sys, time
from ansible.module_utils.basic import AnsibleModule
HOST = {host!r}
def args_of():
    return json.load(open(HOST + "/installed.json"))
def note(*words):
    open(HOST + "/log", "a").write(" ".join(str(word) for word in words) + "\\n")
def settings():
    return json.load(open(HOST + "/settings.json"))
def main():
    module = AnsibleModule(argument_spec={{name: {{"type": "raw"}} for name in {options!r}}}, supports_check_mode=True)
    answer(module)
def answer(module):
{body}
main()
"""
BODIES = {
    "instance_slot": """
    from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import summarize_plan
    path = HOST + "/../results/here/chat/plans/current.json"
    plan = summarize_plan(json.load(open(path))) if os.path.exists(path) else {}
    digest = settings().get("digest", {good!r})
    slot = {"installed": True, "digest": digest, "good": {"digest": {good!r}, "plan": plan}, "stale": False, "up": True,
            "slots": [{"digest": {good!r}}]}
    module.exit_json(instances={"chat": slot}, turn=None)
""".replace("{good!r}", repr(GOOD)),
    "instance_idle": """
    module.exit_json(idle=True)
""",
    "gateway_server": """
    module.exit_json(servers={"here--chat": {"state": settings()["server"]}})
""",
    "instance_bench_info": """
    note("info")
    module.exit_json(start_seconds=40.0, power_limit_watts=700.0, max_model_len=131072, running=0, waiting=0)
""",
    "instance_bench": """
    asked = module.params["measurement"]
    seqs = args_of().get("max-num-seqs")
    note("bench", seqs, asked["requests"], asked["seed"])
    count = open(HOST + "/log").read().count("bench")
    if count == settings().get("waits_at"):
        open(HOST + "/waiting", "w").close()
        time.sleep(600)
    if count == settings().get("fills_at"):
        with open(HOST + "/../results/ballast", "wb", 0) as ballast:
            try:
                while ballast.write(bytes(1024)):
                    pass
            except OSError:
                pass
    if (seqs or "current") == settings().get("dies"):
        module.fail_json(msg="instance chat did not survive the measurement: no memory", died=True)
    if count == settings().get("breaks_at"):
        module.fail_json(msg="instance chat answered 5 requests of others during the measurement.")
    speed = settings()["speeds"].get(str(seqs), 100.0) + asked["seed"] % 3
    result = {"completed": asked["requests"], "duration": 1.0, "output_throughput": speed, "total_output_tokens": 512,
              "median_ttft_ms": 20.0, "median_tpot_ms": 4.0, "p99_itl_ms": 9.0}
    slowed = ["0000:1b:00.0 (hw_therm_slowdown)"] if seqs and seqs == settings().get("slowed") else []
    module.exit_json(result=result, power={}, other_requests=0, slowed=slowed)
""",
}
OPTIONS = (
    "instance", "root", "timeout", "settle", "servers", "state", "stack", "chips", "measurement", "shared", "user"
)  # fmt: skip
ROLE = {
    "host.yml": "- ansible.builtin.debug: {msg: checked}\n",
    "configure.yml": """
- ansible.builtin.copy:
    content: "{{ vllm_plan.plans.chat.args | to_json }}"
    dest: HOST/installed.json
    mode: "0644"
""",
    "run.yml": """
- ansible.builtin.shell: echo start {{ vllm_plan.plans.chat.args['max-num-seqs'] | default('none') }} >> HOST/log
  changed_when: true
- ansible.builtin.assert:
    that: vllm_plan.plans.chat.args['max-num-seqs'] | default(0) != 13
    fail_msg: no room for 13
""",
    "restore.yml": """
- ansible.builtin.shell: echo restore {{ vllm_restore_states | to_json | quote }} >> HOST/log
  changed_when: true
""",
}
STOP = """      ansible.builtin.systemd_service:
        name: "vllm@{{ item }}.service"
        state: stopped
"""


class TunedSite:
    """The copy, and a host in it; ``top`` is an empty directory."""

    def __init__(self, top: Path) -> None:
        self.top, self.host = top, top / "host"
        self.collection = top / "ansible_collections/baremetal/inference"
        self.host.mkdir(parents=True)
        self.collection.mkdir(parents=True)
        shutil.copytree(ROOT / "plugins", self.collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "playbooks", self.collection / "playbooks")
        shutil.copytree(ROOT / "roles", self.collection / "roles")
        for name in ("catalog", "meta", "galaxy.yml"):
            (self.collection / name).symlink_to(ROOT / name)
        self._replace()
        self.settings = {"speeds": {}, "server": "drain"}

    def _replace(self) -> None:
        for name, body in BODIES.items():
            text = MODULE.format(host=str(self.host), options=OPTIONS, body=body)
            (self.collection / f"plugins/modules/{name}.py").write_text(text)
        for name, tasks in ROLE.items():
            path = self.collection / "roles/vllm/tasks" / name
            path.write_text("---\n" + tasks.replace("HOST", str(self.host)))
        lock = self.collection / "plugins/modules/work_lock.py"
        lock.write_text(lock.read_text().replace("/var/lib/vllm", str(self.host)))
        step = self.collection / "playbooks/tasks/tune_measurement.yml"
        assert STOP in step.read_text()
        step.write_text(step.read_text().replace(STOP, "      ansible.builtin.debug: {msg: stopped}\n"))
        detect = self.collection / "roles/accelerator/tasks"
        shutil.rmtree(detect)
        detect.mkdir()
        (detect / "main.yml").write_text(
            f"---\n- ansible.builtin.set_fact: {{accelerator_detected: {json.dumps(DETECTED)}, cacheable: true}}\n"
        )

    @property
    def log(self) -> list[str]:
        """What happened on the host, in order."""
        path = self.host / "log"
        return path.read_text().splitlines() if path.exists() else []

    def tune(self, *words: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        """Run the playbook over the host and return what it said."""
        process = self.begin(*words, **variables)
        try:
            output, errors = process.communicate(timeout=900)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def begin(self, *words: str, **variables: Any) -> subprocess.Popen[str]:
        """Start the playbook over the host, in a session of processes that can be killed together."""
        (self.host / "settings.json").write_text(json.dumps(self.settings))
        (self.top / "ansible.cfg").write_text("[defaults]\ninject_facts_as_vars = false\n")
        here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "accelerator": "h200",
            "accelerator_count": 1,
            "vllm_release": "0.33.0",
            "vllm_instances": {"chat": {"recipe": RECIPE, "preset": "balanced", "port": 8000}},
        }
        groups: dict[str, Any] = {"inference": {"hosts": {"here": here}}}
        if self.settings.get("gateway"):
            gateway = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
            groups["gateways"] = {"hosts": {"gw": gateway}}
        (self.top / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
        given = {
            "ansible_become": False,
            "tune_instance": "chat",
            "tune_goal": {"metric": "output_tokens_per_second", "concurrency": 2},
            "tune_dir": str(self.top / "results"),
            "tune_rounds": 2,
            **variables,
        }
        command = [sys.executable, "-m", "ansible", "playbook", str(self.collection / "playbooks/tune.yml")]
        return subprocess.Popen(
            [*command, "-i", str(self.top / "hosts.json"), "-e", json.dumps(given), *words],
            cwd=self.top,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(self.top),
                "ANSIBLE_CONFIG": str(self.top / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_HOME": str(self.top / "ansible"),
            },
        )
