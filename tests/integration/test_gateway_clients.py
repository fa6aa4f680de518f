# SPDX-License-Identifier: GPL-3.0-or-later
"""Three Python clients that people use chat through the gateway, with the settings of docs/operate/clients.md.

The model is a stand-in. What is real: the clients from PyPI, TLS with a CA of its own, HAProxy, the middleware.
CLIENTS_PYTHON names a Python that has openai, litellm and langchain-openai.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.fakes.agent_engine import DONE
from tests.fakes.gateways import HAPROXY, KEY, TOP, until
from tests.integration.test_gateway_agents import MODEL, behind
from tests.integration.test_gateway_usage import stored, total

PAGE = (TOP / "docs/operate/clients.md").read_text()
PACKAGES = {"openai": "openai", "litellm": "litellm", "langchain": "langchain-openai"}
PROGRAMS = dict(re.findall(r"^### (\w+)\n.*?```python\n(.*?)```", PAGE, re.M | re.S))

__all__ = ["behind"]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]


@pytest.fixture(scope="module")
def python():
    """A Python with the clients."""
    given = os.environ.get("CLIENTS_PYTHON")
    if given:
        return given
    directory = TOP / ".cache/clients"
    found = directory / "bin/python"
    if not (directory / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        command = [str(found), "-m", "pip", "install", "--quiet", "--no-input", *PACKAGES.values()]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no packages here: {done.stderr[-300:]}")
        (directory / "complete").touch()
    return str(found)


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_client_chats_with_the_settings_of_its_page(python, behind, tmp_path, name):
    program = PROGRAMS[name].replace("https://chat.example.net", behind.address).replace("MODEL", MODEL)
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "GATEWAY_KEY": KEY,
        "SSL_CERT_FILE": str(tmp_path / "ca/ca.crt"), "NO_PROXY": "localhost",
    }  # fmt: skip
    done = subprocess.run(
        [python, "-c", program], env=environ, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stdout.split("\n")[:2] == [DONE, DONE], done.stdout + done.stderr[-3000:]
    assert [path for path, _request, _headers in behind.engine.requests] == ["/v1/chat/completions"] * 2
    until(
        lambda: total(stored(tmp_path, "gw"), "completion", client="alice", team="research") == behind.engine.generated
    )
