# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with the instance chat in a virtual environment whose `vllm bench serve` answers with a recorded result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

RESULT = Path(__file__).resolve().parents[1] / "fixtures/h200/vllm-bench-serve_c1.json"
KEY = "sk-of-the-site"

# It keeps its arguments and its environment, does what the file `behaviour` has, and writes the recorded result.
PROGRAM = """#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
options = dict(zip(sys.argv[3:], sys.argv[4:]))
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
print("Starting initial single prompt test run...")
exec(open(os.path.join(here, "behaviour")).read())
print("Starting main benchmark run...")
result = json.load(open({result!r}))
result.update(duration=DURATION, completed=int(options["--num-prompts"]) - FAILED, failed=FAILED)
time.sleep(DURATION)
path = os.path.join(options["--result-dir"], options["--result-filename"])
json.dump(result, open(path, "w"))
"""


class BenchHost:
    """The files below ``root``; ``port`` is where the instance listens."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.bin = root, root / "venv/bin"
        for place in ("etc/vllm", "var/lib/vllm/chat", "venv/bin"):
            (root / place).mkdir(parents=True)
        text = (
            f"host: 127.0.0.1\nport: {port}\nmodel: /srv/models/m\nserved-model-name:\n  - m\ntrust-remote-code: true\n"
        )
        (root / "etc/vllm/chat.yaml").write_text(text)
        (root / "etc/vllm/chat.secrets").write_text(f"VLLM_API_KEY={KEY}\n")
        self.serve(f"{self.bin}/vllm serve")
        self.program("vllm", PROGRAM.format(python=sys.executable, result=str(RESULT)))
        self.behave()

    def serve(self, command: str) -> None:
        """Let the start script of the instance run this command."""
        (self.root / "var/lib/vllm/chat/serve").write_text(f'#!/bin/sh\nexec {command} \\\n  "$@"\n')

    def program(self, name: str, text: str) -> None:
        """Put a program into the directory of programs."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def behave(self, code: str = "", duration: float = 0.1, failed: int = 0) -> None:
        """Let the benchmark run this code before it begins, and report this duration and so many failed requests."""
        (self.bin / "behaviour").write_text(f"DURATION, FAILED = {duration}, {failed}\n{code}\n")

    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        """Return arguments and environment of each run of the benchmark."""
        path = self.bin / "calls"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
