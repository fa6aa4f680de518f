# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the lab that a test runs in, for testinfra."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testinfra import get_host

TOP = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def prepared(name: str, command: str) -> Iterator[Callable[[], None]]:
    """Yield what has a host run a command at once: a login can take longer than an answer that it has to come into."""
    words = [sys.executable, "tools/lab/__main__.py", "ssh", name, f"echo ready; read go && {command}"]
    with subprocess.Popen(words, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin and run.stdout and run.stdout.readline() == "ready\n"

        def go() -> None:
            run.communicate("go\n")
            assert run.returncode == 0

        try:
            yield go
        finally:
            run.kill()


def connect(name: str) -> Any:
    """Return a host over plain SSH: through Ansible each command takes seconds."""
    lab = Path(os.environ["LAB_HOME"], os.environ["LAB_NAME"], "inventory.json")
    inventory = json.loads(lab.read_text())["lab"]
    return get_host(
        f"ssh://root@{inventory['hosts'][name]['ansible_host']}",
        ssh_identity_file=inventory["vars"]["ansible_ssh_private_key_file"],
        ssh_extra_args=inventory["vars"]["ansible_ssh_common_args"],
    )
