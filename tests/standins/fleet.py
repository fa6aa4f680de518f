# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a scenario with stand-ins, and runs of its play over them as users make them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Sequence

from tests.lab_host import connect

TOP = Path(__file__).resolve().parents[2]
INVENTORY = TOP / ".config/molecule/inventory/role"
HOSTS = ("cpu-12", "cpu-13")
STATE = "/var/lib/standin"


@dataclass
class Run:
    """What a run of the play has said."""

    rc: int
    output: str
    hosts: Sequence[str] = HOSTS

    @property
    def errors(self) -> dict[str, str]:
        """The errors of each host, in the order of the tasks."""
        found: dict[str, str] = {}
        for host, text in re.findall(r"^fatal: \[([\w-]+)\]: FAILED! => (\{.*\})$", self.output, re.MULTILINE):
            said = json.loads(text)
            found[host] = f"{found.get(host, '')} {said.get('msg', '')} {said.get('stderr', '')}"
        return {host: " ".join(text.split()) for host, text in found.items()}

    @property
    def changed(self) -> int:
        """The number of changes on all hosts."""
        return sum(map(int, re.findall(r"changed=(\d+)", self.output)))

    def fails_everywhere(self, *words: str) -> bool:
        """Return whether every host has failed and said all of this; shows what it said where not."""
        assert self.rc != 0, self.output
        assert sorted(self.errors) == sorted(self.hosts), self.output
        for host, said in self.errors.items():
            for word in words:
                assert word in said, f"{host}: {word!r} is not in {said}"
        return True


class Fleet:
    """All hosts of a scenario at once, or some of them."""

    def __init__(self, play: Path, names: Sequence[str] = HOSTS) -> None:
        self.play_file = play
        self.hosts = {name: connect(name) for name in names}

    def run(self, command: str) -> dict[str, str]:
        """Run a shell command that has to succeed; return what each host says."""
        return {name: host.check_output(command) for name, host in self.hosts.items()}

    def serve(self) -> None:
        """Have an instance on the chips of each host, and forget what was logged until then."""
        self.run("systemctl start vllm@chat")
        self.until(f"[ -e {STATE}/daemon-vllm@chat ]")
        self.run(f": >{STATE}/log")

    def until(self, condition: str) -> None:
        """Wait until a condition of the shell is true on each host."""
        self.run(f"timeout 300 sh -c 'until {condition}; do sleep 0.2; done'")

    def cleaned(self) -> Iterator[list[str]]:
        """Yield a list for a fixture; commands that are put into it are run on all hosts afterwards, the last first."""
        commands: list[str] = []
        yield commands
        for command in reversed(commands):
            self.run(command)

    def play(self, *options: str, limit: str = "", **variables: Any) -> Run:
        """Run the play once more."""
        given = ["-i", str(INVENTORY), "-l", limit or ",".join(self.hosts), "-e", json.dumps(variables), *options]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_CALLBACK_FORMAT_PRETTY": "false",
        }
        words = ["ansible-playbook", *given, str(self.play_file)]
        done = subprocess.run(words, cwd=TOP, env=environment, capture_output=True, text=True, check=False, timeout=900)
        return Run(done.returncode, done.stdout + done.stderr, list(self.hosts))
