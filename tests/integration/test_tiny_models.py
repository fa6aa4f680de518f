# SPDX-License-Identifier: GPL-3.0-or-later
"""Real answers of five architectures: the real vLLM serves a tiny model of each on this CPU, and is asked what fits it.

The files of each instance are those that the role writes; the module finds out from them and from the model's own files
what to ask.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.model_config import excerpt_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.kv_cache import Cache, request_bytes
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import shape_of

from tests.fakes.wheelhouse import run_module
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

pytestmark = pytest.mark.long

CHAT = ["chat", "chat_stream", "responses", "completions"]
# The checks of each model, and what each one's answer holds.
EXPECTED = {
    "llama": (CHAT, {"chat": "'The fleet is ready.' (stop", "responses": "'The fleet is ready.' (completed"}),
    "qwen3-moe": ([*CHAT, "tool_call"], {"tool_call": 'called get_weather({"city": "Paris"})'}),
    "deepseek-v2": (CHAT, {"chat": "'The fleet is ready.' (stop"}),
    "idefics3": ([*CHAT, "image"], {"image": "'The picture is red.' (stop)"}),
    "bert": (["embedding"], {"embedding": "3 vectors of 64 numbers, similarity 0.92 of related and 0.79 of other"}),
}
UNIT_IS_UP = """#!/bin/sh
printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nResult=success\\nNRestarts=0\\nInvocationID=one\\n'
"""


@pytest.fixture(scope="module")
def python():
    """The Python of an environment with vLLM's CPU build."""
    return fetched(environment)


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemctl for which every unit runs: this test starts vLLM itself."""
    script = tmp_path / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(UNIT_IS_UP)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


# What vLLM logs of the cache of one GiB: the length of a request, and how many such requests the cache holds.
CAPACITY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")


def check_capacity(log, directory):
    """Compare the requests that vLLM's cache holds with those of the plan's calculation."""
    (length, requests) = CAPACITY.search(log).groups()
    shape = shape_of(excerpt_of((directory / "config.json").read_bytes()))
    each = request_bytes(shape, int(length.replace(",", "")), 1, Cache(2, 2048))
    # vLLM rounds the cache down to complete blocks, which hold up to 128 tokens on a CPU.
    assert float(requests) == pytest.approx(1024**3 / each, rel=0.01)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.usefixtures("systemd")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_real_vllm_answers_what_fits_its_model(python, tmp_path, name):
    model, directory, port = FAMILIES[name](), tmp_path / "model", free_port()
    write(model, directory)
    arguments = ["--model", directory, "--served-model-name", name, "--host", "127.0.0.1", "--port", port]
    limits = ["--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", "4"]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", *arguments, *limits, *model.arguments]
    environ = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    options = f"enable-auto-tool-choice: {'true' if '--enable-auto-tool-choice' in model.arguments else 'false'}\n"
    lines = f"model: {directory}\nserved-model-name:\n- {name}\nhost: 127.0.0.1\nport: {port}\n{options}"
    (tmp_path / "chat.yaml").write_text(lines)
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([str(word) for word in command], env=environ, stdout=log, stderr=log)
        try:
            result = run_module(
                "endpoint", instance="chat", config_dir=str(tmp_path), ready_timeout=300, request_timeout=120
            )
        finally:
            server.terminate()
            server.wait(60)
    assert result["ok"], f"{result['msg']}\n{(tmp_path / 'log').read_text()[-3000:]}"
    details = {row["name"]: row["detail"] for row in result["checks"]}
    checks, answers = EXPECTED[name]
    assert list(details) == ["ready", "models", *checks] and result["doubts"] == []
    assert {check: details[check] for check, part in answers.items() if part not in details[check]} == {}
    if name != "bert":
        # A model of embeddings has no cache.
        check_capacity((tmp_path / "log").read_text(errors="replace"), directory)
