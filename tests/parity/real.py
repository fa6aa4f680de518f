# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that parse commands with vLLM's own command lines (tools/vllm/real_parser.py)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import LIBRARY

from tests.fakes.wheelhouse import ROOT
from tools.vllm.fetch_vllm_release import CPU_BUILD, environment, sources

NEWEST = "0.33.0"
RELEASES = (CPU_BUILD, NEWEST)


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """vLLM would not start with these arguments; the message is its own."""


class RealParser:
    """The parser of one release. It needs seconds to start, so start all of them before the first request."""

    program = "real_parser.py"

    def __init__(self, version, python, directory, site=None):
        self.version = version
        self.python = python
        self.directory = directory
        self.known = {}
        self.scratch = tempfile.TemporaryDirectory()
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process runs
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("VLLM_", "PYTHON"))}
        environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", DO_NOT_TRACK="1")
        if site:
            environ["PYTHONPATH"] = str(site)
        self.environ = environ
        self.process = subprocess.Popen(
            [python, ROOT / "tools" / "vllm" / self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environ,
            # As in vLLM's images, where recipes name chat templates by examples/...
            cwd=directory,
        )
        self.started = False

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"vLLM {self.version} does not import:\n{self.errors.read()[-3000:]}")
        return json.loads(line)

    def read(self, words, config=None):
        """Return the arguments that a command sets, by vLLM's names; ``config`` is the text of a --config file.

        Raises Refused.
        """
        key = (tuple(words), config)
        if key not in self.known:
            self.known[key] = self._ask(list(words), config)
        answer = self.known[key]
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["namespace"]

    def _ask(self, words, config):
        if config is not None:
            path = Path(self.scratch.name, "config.yaml")
            path.write_text(config.replace(f"{LIBRARY}/tool_chat", "examples/tool_chat"), encoding="utf-8")
            words += ["--config", str(path)]
        return self.ask(words)

    def ask(self, request):
        """Return the answer of the process to a request; the role's files are those of its working directory."""
        if not self.started:
            version = self._answer()["version"]
            assert version == self.version, f"expected vLLM {self.version}, found {version}"
            self.started = True
        self.process.stdin.write(json.dumps(request).replace(f"{LIBRARY}/tool_chat", "examples/tool_chat") + "\n")
        self.process.stdin.flush()
        return self._answer()

    def stop(self):
        # Nothing needs an orderly end, for which torch takes seconds.
        self.process.kill()
        self.process.communicate()
        self.errors.close()
        self.scratch.cleanup()


def start_all():
    """Return the parser of each release. Raises FetchError where a release cannot be downloaded."""
    python, site = environment(), sources(NEWEST)
    return {CPU_BUILD: RealParser(CPU_BUILD, python, site), NEWEST: RealParser(NEWEST, python, site, site)}
