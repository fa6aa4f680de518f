# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
INVENTORIES = ("-i", str(TOP / ".config/molecule/inventory/site"))
KEY = "canary-api-key-5f1d0c"
URL = f"http://{os.environ['LAB_SUBNET_PREFIX']}.12:8000"
SECRETS = (KEY, "hf_canaryHubToken7b2e")


def playbook(*arguments: str, inventories: tuple[str, ...] = INVENTORIES) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the checkout on the scenario's hosts, as a user does."""
    command = ["ansible-playbook", *inventories, *arguments]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def post(path: str, body: dict, timeout: int = 60, url: str = URL) -> dict:
    """Ask vLLM for a JSON answer over the lab's network: a command on the host would leave the key in its journal."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as answer:
        return json.load(answer)


def chat(url: str = URL) -> str:
    """Return what the model says to a question."""
    messages = [{"role": "user", "content": "Is the fleet ready?"}]
    answer = post("/v1/chat/completions", {"model": "baremetal/gpt-oss-smoke", "messages": messages}, url=url)
    return answer["choices"][0]["message"]["content"]


def wait_active(host, seconds: int = 400, unit: str = "vllm@chat") -> None:
    """Wait until the unit is active again: it is only when vLLM answers."""
    deadline = time.monotonic() + seconds
    while host.run("systemctl is-active %s", unit).stdout.strip() != "active":
        if time.monotonic() > deadline:
            pytest.fail(f"{unit} is not active after {seconds} s:\n{journal(host, unit)}")
        time.sleep(1)


def journal(host, unit: str = "vllm@chat") -> str:
    """Return the last lines of an instance."""
    return host.run("journalctl -u %s --no-pager -n 30", unit).stdout
