# SPDX-License-Identifier: GPL-3.0-or-later
"""Three agents that people use finish a task through the gateway: each from npm, as its maker publishes it.

The model is a stand-in that has the agent run one command. What is real: the agent, its requests, HAProxy, the
middleware. AGENTS_DIRECTORY names a directory where the packages are or will be.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes.agent_engine import DONE, AgentEngine
from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HAPROXY, KEY, TOP, client, free_port, gateway, plan, until
from tests.fakes.wheelhouse import run_module
from tests.integration.test_gateway_usage import service, stored, total

PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.332",
    "codex": "@openai/codex@0.169.0",
    "opencode": "opencode-ai@1.18.33",
}
MODEL = "the/model-1"
TASK = "Write the word ready into the file result.txt."

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]


@pytest.fixture(scope="module")
def agents():
    """The directory of the programs."""
    directory = Path(os.environ.get("AGENTS_DIRECTORY") or TOP / ".cache/agents")
    found = directory / "node_modules/.bin"
    if not all((found / name).exists() for name in PACKAGES):
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("needs npm")
        directory.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(directory), *PACKAGES.values()]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"npm has no packages here: {done.stderr[-500:]}")
    return found


@pytest.fixture
def behind(tmp_path):
    """A gateway before the stand-in, and the directory in which the agent works."""
    work, port = tmp_path / "work", free_port()
    work.mkdir()
    made = run_module("gateway_certificate", ca_dir=str(tmp_path / "ca"), host="gw", names=["localhost"])
    (tmp_path / "gateway.pem").write_text(Path(made["key"]).read_text() + Path(made["certificate"]).read_text())
    with contextlib.ExitStack() as stack:
        model = AgentEngine("echo ready > result.txt")
        engine = stack.enter_context(counted_engine(tmp_path / "run", engine=model))
        more = {
            "plans": {"chat-1": plan(engine.port, models=(MODEL,))},
            "options": {"tokens": True, "tokens_port": port, "clients": {"alice": {"team": "research"}}, "tls": "own"},
            "variables": {"gateway_tls": "own"},
        }
        found = stack.enter_context(gateway(tmp_path, [], [client(team="research")], name="gw", **more))
        stack.enter_context(service(tmp_path, "gw", [engine], port))
        until(lambda: found.state("gw--chat-1") == "UP")
        found.work, found.engine, found.address = work, engine, f"https://localhost:{found.port}"
        yield found


def claude(found, key_name):
    words = ["-p", TASK, "--model", MODEL, "--allowedTools", "Bash"]
    return words, {"ANTHROPIC_BASE_URL": found.address, key_name: KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def codex(found, _key_name):
    provider = {"name": "gateway", "base_url": f"{found.address}/v1", "wire_api": "responses", "env_key": "GATEWAY_KEY"}
    words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", MODEL]
    words += ["-c", "model_provider=gateway"]
    for name, value in provider.items():
        words += ["-c", f"model_providers.gateway.{name}={json.dumps(value)}"]
    return [*words, TASK], {"GATEWAY_KEY": KEY}


def opencode(found, _key_name):
    options = {"baseURL": f"{found.address}/v1", "apiKey": "{env:GATEWAY_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "gateway", "options": options, "models": {MODEL: {}}}
    config = {
        "provider": {"gateway": provider}, "model": f"gateway/{MODEL}", "small_model": f"gateway/{MODEL}",
        "autoupdate": False, "share": "disabled", "permission": {"bash": "allow"},
    }  # fmt: skip
    (found.work / "opencode.json").write_text(json.dumps(config))
    return ["run", TASK], {"GATEWAY_KEY": KEY}


@pytest.mark.parametrize(
    ("name", "words_of", "key_name", "path"),
    [
        ("claude", claude, "ANTHROPIC_AUTH_TOKEN", "/v1/messages"),
        ("claude", claude, "ANTHROPIC_API_KEY", "/v1/messages"),
        ("codex", codex, "", "/v1/responses"),
        ("opencode", opencode, "", "/v1/chat/completions"),
    ],
)
def test_an_agent_finishes_a_task_through_the_gateway(agents, behind, tmp_path, name, words_of, key_name, path):
    home = tmp_path / "home"
    home.mkdir()
    words, variables = words_of(behind, key_name)
    environ = {"PATH": f"{agents}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8", **variables}
    # Whatever else the machine sets so that npm and node reach the network.
    environ.update({key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")})
    environ.update({"NO_PROXY": "localhost", "no_proxy": "localhost"})
    # Of the site alone.
    environ["SSL_CERT_FILE" if name == "codex" else "NODE_EXTRA_CA_CERTS"] = str(tmp_path / "ca/ca.crt")
    done = subprocess.run(
        [str(agents / name), *words], cwd=behind.work, env=environ, check=False, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    said = done.stdout + done.stderr
    log = behind.log.read_text()
    assert done.returncode == 0 and DONE in said, f"{said[-3000:]}\n{log[-3000:]}"
    assert (behind.work / "result.txt").read_text().split() == ["ready"]
    asked = [each for each, _request, _headers in behind.engine.requests]
    assert asked.count(path) >= 2, asked
    # Nothing of it was refused.
    refused = [line for line in log.splitlines() if "service=" in line and "status=200" not in line]
    assert refused == []
    until(
        lambda: total(stored(tmp_path, "gw"), "completion", client="alice", team="research") == behind.engine.generated
    )
    assert KEY not in log
