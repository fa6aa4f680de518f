# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
INVENTORIES = ("-i", str(TOP / ".config/molecule/inventory/site"))
MODEL = "baremetal/gpt-oss-smoke"
KEY = "canary-api-key-5f1d0c"
URL = f"http://{os.environ['LAB_SUBNET_PREFIX']}.12:8000"
SECRETS = (KEY, "hf_canaryHubToken7b2e")


def playbook(*arguments: str, inventories: tuple[str, ...] = INVENTORIES) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the checkout on the scenario's hosts, as a user does."""
    command = ["ansible-playbook", *inventories, *arguments]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def ask(path: str, body: dict, url: str = URL) -> http.client.HTTPResponse:
    """Ask vLLM over the lab's network: a command on the host would leave the key in its journal."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=120)


def post(path: str, body: dict, url: str = URL) -> dict:
    """Ask vLLM for a JSON answer."""
    with ask(path, body, url) as answer:
        return json.load(answer)


class Stream:
    """A completion that is being made: its first token is there.

    The tokens are some seconds on the fastest machine, and within the lab's drain timeout on a slow one.
    """

    LENGTH = 400

    def __init__(self, url: str = URL, tokens: int = LENGTH):
        body = {"model": MODEL, "prompt": "hi", "max_tokens": tokens, "ignore_eos": True}
        self.answer = ask("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}, url)
        self.answer.readline()

    def tokens(self) -> int:
        """Read to the end, and return how many there were. A connection that is cut raises."""
        *_others, usage, done = [line for line in self.answer if line.strip()]
        assert done.strip() == b"data: [DONE]", done
        return json.loads(usage.removeprefix(b"data: "))["usage"]["completion_tokens"]


def chat(url: str = URL) -> str:
    """Return what the model says to a question."""
    messages = [{"role": "user", "content": "Is the fleet ready?"}]
    answer = post("/v1/chat/completions", {"model": MODEL, "messages": messages}, url=url)
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
    return host.run("journalctl -u %s --no-pager -n 300", unit).stdout
