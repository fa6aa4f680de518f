# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scenario's hosts, and runs of its play over them as users make them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from testinfra import get_host

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/role"
PLAY = TOP / "molecule/role_cuda/converge.yml"
HOSTS = ("cpu-12", "cpu-13")
DISTRIBUTIONS = {"cpu-12": "debian12", "cpu-13": "debian13"}
KERNELS = ("6.1.0-40-amd64", "6.1.0-41-amd64")
VERSIONS = ("580.95.05", "580.159.04")
MIRROR = [
    "standin mirror nvidia /srv/nvidia",
    *(f"--version {word}" for word in VERSIONS),
    *(f"--kernel {word}" for word in KERNELS),
]


def connect(name: str) -> Any:
    """Return a host over plain SSH: through Ansible each command takes seconds."""
    lab = Path(os.environ["LAB_HOME"], os.environ["LAB_NAME"], "inventory.json")
    inventory = json.loads(lab.read_text())["lab"]
    return get_host(
        f"ssh://root@{inventory['hosts'][name]['ansible_host']}",
        ssh_identity_file=inventory["vars"]["ansible_ssh_private_key_file"],
        ssh_extra_args=inventory["vars"]["ansible_ssh_common_args"],
    )


@dataclass
class Run:
    """What a run of the play has said."""

    rc: int
    output: str

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
        assert sorted(self.errors) == sorted(HOSTS), self.output
        for host, said in self.errors.items():
            for word in words:
                assert word in said, f"{host}: {word!r} is not in {said}"
        return True


class Fleet:
    """All hosts of the scenario at once."""

    def __init__(self) -> None:
        self.hosts = {name: connect(name) for name in HOSTS}

    def run(self, command: str) -> dict[str, str]:
        """Run a shell command that has to succeed; return what each host says."""
        return {name: host.check_output(command) for name, host in self.hosts.items()}

    def mirror(self, *options: str) -> None:
        """Publish the vendor's repository once more, with faults."""
        for name, host in self.hosts.items():
            host.check_output(" ".join([*MIRROR, "--distribution", DISTRIBUTIONS[name], *options]))

    def play(self, *options: str, limit: str = "all", **variables: Any) -> Run:
        """Run the play once more."""
        words = [
            "ansible-playbook",
            "-i",
            str(INVENTORY),
            "-l",
            limit,
            "-e",
            json.dumps(variables),
            *options,
            str(PLAY),
        ]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_CALLBACK_FORMAT_PRETTY": "false",
        }
        done = subprocess.run(words, cwd=TOP, env=environment, capture_output=True, text=True, check=False, timeout=900)
        return Run(done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="session")
def fleet() -> Fleet:
    """The scenario's hosts."""
    return Fleet()


@pytest.fixture
def cleaned(fleet):
    """Yield a list; commands that are put into it are run on all hosts after the test, the last first."""
    commands: list[str] = []
    yield commands
    for command in reversed(commands):
        fleet.run(command)
