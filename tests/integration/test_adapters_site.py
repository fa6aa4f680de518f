# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapters of an instance change with site.yml, on a lab host with a real vLLM, and its unit is not restarted."""

from __future__ import annotations

import json
import os
import shlex

import pytest

from tests.fakes.wheelhouse import ROOT
from tests.integration.tiny_adapters import FIRST, PROMPT, RANK, SECOND, adapter
from tests.integration.tiny_lab import TinyLab

pytestmark = [pytest.mark.long, pytest.mark.lab]

LAB = {
    **os.environ,
    "LAB_HOME": os.environ.get("LAB_HOME", str(ROOT / ".lab")),
    "LAB_NAME": os.environ.get("LAB_NAME", "adapters"),
    "LAB_SUBNET_PREFIX": os.environ.get("LAB_SUBNET_PREFIX", "10.87.243"),
    "ANSIBLE_NOCOLOR": "1",
}
PORT = 8001
ARGS = {
    "kv-cache-memory-bytes": "192M",
    "distributed-executor-backend": "uni",
    "enable-lora": True,
    "max-loras": 2,
    "max-lora-rank": RANK,
    "max-model-len": 2048,
}
ENV = {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def on_host(lab, command):
    done = lab.run(ROOT / "bin/lab", "ssh", "cpu-12", command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def ask(lab, model):
    """Return the answer of a model or an adapter, or the message of the error."""
    body = {"model": model, "prompt": PROMPT, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    url = f"http://127.0.0.1:{PORT}/v1/completions"
    command = ["curl", "-sS", "-H", "content-type: application/json", "-d", json.dumps(body), url]
    answer = json.loads(on_host(lab, shlex.join(command)))
    return answer["choices"][0]["text"] if "choices" in answer else answer["error"]["message"]


def main_pid(lab):
    return on_host(lab, "systemctl show vllm@chat -p MainPID --value")


def changes(output):
    """Return how many tasks have changed something."""
    (line,) = (line for line in output.splitlines() if line.startswith("cpu-12 ") and "changed=" in line)
    return int(line.split("changed=")[1].split()[0])


def test_adapters_come_change_and_go_with_the_site_playbook(tmp_path):
    others = {"one": adapter(tmp_path / "one", 0, 1), "two": adapter(tmp_path / "two", 1, 2)}
    lab = TinyLab(LAB, tmp_path, ("llama",), others)
    with lab.mirror("cpu-12") as mirror:

        def write(*adapters):
            """Write the site with these adapters; return the words that choose it."""
            instance = {
                "recipe": "tiny/llama",
                "port": PORT,
                "env": ENV,
                "args": {**ARGS, "lora-modules": list(adapters)},
            }
            return "-i", str(lab.site(mirror, {"chat": instance})), "-l", "cpu-12"

        lab.playbook("site", *write("sql=tiny/one"))
        started = main_pid(lab)
        assert ask(lab, "sql") == FIRST
        site = write("sql=tiny/two", "new=tiny/one")
        checked = lab.playbook("site", *site, "--check")
        assert changes(checked) and ask(lab, "sql") == FIRST
        lab.playbook("site", *site)
        assert (main_pid(lab), ask(lab, "sql"), ask(lab, "new")) == (started, SECOND, FIRST)
        assert changes(lab.playbook("site", *site)) == 0
        lab.playbook("site", *write("new=tiny/one"))
        assert (main_pid(lab), ask(lab, "new")) == (started, FIRST)
        assert "sql" in ask(lab, "sql")
        # The file has what the engine has.
        on_host(lab, "systemctl restart vllm@chat")
        assert main_pid(lab) != started and ask(lab, "new") == FIRST
        assert changes(lab.playbook("site", *write("new=tiny/one"))) == 0
