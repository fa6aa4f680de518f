# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference` run as a process, with Ansible behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(TOP / "bin/inference")]
KEPT = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}


def run(*words, cwd=TOP, **environment):
    """Run the command as a user does, whose own settings of Ansible do not reach it."""
    command = [*COMMAND, *words]
    return subprocess.run(command, cwd=cwd, env={**KEPT, **environment}, capture_output=True, text=True, check=False)
