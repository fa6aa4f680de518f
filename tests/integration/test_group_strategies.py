# SPDX-License-Identifier: GPL-3.0-or-later
"""A dense model over two lab hosts with a real vLLM: a copy on each host, then half of the layers on each.

molecule/group splits each layer. Experts over hosts do not run on CPUs (vLLM's communicator has no all_gatherv).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.wheelhouse import ROOT
from tests.integration.tiny_lab import TinyLab

pytestmark = [pytest.mark.long, pytest.mark.lab]

PREFIX = os.environ.get("LAB_SUBNET_PREFIX", "10.87.243")
LAB = {
    **os.environ,
    "LAB_HOME": os.environ.get("LAB_HOME", str(ROOT / ".lab")),
    "LAB_NAME": os.environ.get("LAB_NAME", "pairs"),
    "LAB_SUBNET_PREFIX": PREFIX,
    "ANSIBLE_NOCOLOR": "1",
}
HOSTS = ("cpu-12", "cpu-12b")
URL = f"http://{PREFIX}.12:8000"
ANSWER = "The fleet is ready."
STRATEGIES = ("multi_node_tp_dp", "multi_node_tp_pp")
ENV = {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
       "TORCH_COMPILE_DISABLE": "1"}  # fmt: skip
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LONG = 400
SUCCESS = re.compile(r'(?m)^vllm:request_success_total\{engine="(.)",finished_reason="stop".* ([0-9.]+)$')


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    found = TinyLab(LAB, tmp_path_factory.mktemp("pairs"), ("llama",))
    with found.mirror(*HOSTS) as address:
        found.address = address
        yield found


def site(lab, strategy):
    """Return the words of a playbook for the group with a strategy."""
    args, env = {"kv-cache-memory-bytes": "192M"}, ENV
    if strategy == "multi_node_tp_pp":
        # vLLM on CPUs makes the place for the second half's input in a warm-up run, and has none with --enforce-eager.
        # This backend compiles without a C++ compiler.
        args = {**args, "enforce-eager": None, "compilation-config": {"mode": 2, "backend": "eager"}}
        env = {**ENV, "TORCH_COMPILE_DISABLE": None}
    big = {"recipe": "tiny/llama", "nodes": list(HOSTS), "strategy": strategy, "host": "0.0.0.0", "port": 8000,
           "args": args, "env": env}  # fmt: skip
    more = {"vllm_cluster_network": f"{PREFIX}.0/24", "vllm_group_stall": 120}
    inventory = lab.site(lab.address, {"big": big}, STRATEGIES, **more)
    (inventory / "20-pair.yml").write_text(json.dumps({"inference": {"hosts": dict.fromkeys(HOSTS)}}))
    return ["-i", str(inventory), "-l", ",".join(HOSTS)]


def on(host, command):
    """Return what a host says to a command, whatever its status."""
    octet = {"cpu-12": 12, "cpu-12b": 14}[host]
    home = f"{LAB['LAB_HOME']}/{LAB['LAB_NAME']}/ssh"
    words = ["ssh", "-F", "none", "-i", f"{home}/id_ed25519", "-o", f"UserKnownHostsFile={home}/known_hosts"]
    done = subprocess.run([*words, f"root@{PREFIX}.{octet}", command], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def get(path):
    with OPENER.open(f"{URL}{path}", timeout=20) as answer:
        return answer.read().decode()


def chat(_number=0):
    """Return the answer of the model, or why there is none."""
    body = {"model": "tiny/llama", "messages": [{"role": "user", "content": "Is the fleet ready?"}], "temperature": 0}
    request = urllib.request.Request(
        f"{URL}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with OPENER.open(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]
    except OSError as error:
        return repr(error)


def wait_for_answers():
    """Wait until four answers in a row are right: with a copy on each host, both have to."""
    began = time.monotonic()
    while True:
        found = [chat() for _number in range(4)]
        if found == [ANSWER] * 4:
            return time.monotonic() - began
        assert time.monotonic() - began < LONG, found
        time.sleep(2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pair_answers_and_comes_back(lab, strategy, record_property):
    words = site(lab, strategy)
    lab.playbook("site", *words)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(chat, range(16))) == {ANSWER}
    if strategy == "multi_node_tp_dp":
        rows = re.findall(
            r'(?m)^vllm:request_success_total\{engine="(.)",finished_reason="stop".* ([0-9.]+)$', get("/metrics")
        )
        assert {engine for engine, count in rows if float(count) > 0} == {"0", "1"}, rows
    assert lab.playbook("site", *words).count("changed=0") >= len(HOSTS)
    document = json.loads(lab.run(sys.executable, "tools/verify.py", *words).stdout)
    assert document["ok"], document

    before = [on(host, "systemctl show -P InvocationID vllm@big") for host in HOSTS]
    # The brackets keep the pattern from finding the shell that looks for it.
    engine = 'pgrep -of "[V]LLM::" || pgrep -oP "$(systemctl show -P MainPID vllm@big)"'
    assert on("cpu-12b", f"kill -9 $({engine}) && echo killed") == "killed"
    end = time.monotonic() + 60
    while any(on(host, "systemctl show -P InvocationID vllm@big") == then for host, then in zip(HOSTS, before)):
        assert time.monotonic() < end, "one side was not started again"
        time.sleep(1)
    record_property("right answers after the engine's death", round(wait_for_answers(), 1))
