# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab_host import connect
from tests.standins.fleet import INVENTORY, TOP


@dataclass
class Engine:
    """One engine of one host."""

    host: Any
    where: str
    name: str

    def info(self) -> dict:
        """Return the engine's own report of its state."""
        form = "{{json .}}" if self.name == "docker" else "json"
        return json.loads(self.host.check_output("%s info --format %s", self.name, form))

    def run(self, name: str, *arguments: str) -> str:
        """Start a container that sleeps, and return its name."""
        self.host.run("%s rm -f %s", self.name, name)
        options = " ".join(arguments)
        self.host.check_output(
            f"{self.name} run -d --name {name} --network host {options} tiny:1 /bin/busybox sleep 3600"
        )
        return name

    def started(self, name: str) -> tuple[str, int]:
        """Return when a container started, and its process."""
        state = json.loads(self.host.check_output("%s inspect %s", self.name, name))[0]["State"]
        assert state["Running"], state
        return state["StartedAt"], state["Pid"]

    def opens(self, name: str, device: str) -> bool:
        """Return whether a container may open a device node. The device behind the node does not matter."""
        # On a busy host, runc itself fails now and then: what the container says counts.
        words = f"(: < {device}) && echo opened || echo refused"
        for _attempt in range(3):
            said = self.host.run(f"{self.name} exec {name} /bin/busybox sh -c '{words}' || true").stdout.split()
            if said:
                return bool(said == ["opened"])
        raise AssertionError(f"{self.name} runs nothing in {name}")


@pytest.fixture(scope="session")
def engines() -> dict[tuple[str, str], Engine]:
    """The engines of the hosts, each with a tiny image."""
    found = {}
    for where in ("cpu-12", "cpu-13"):
        host = connect(where)
        host.check_output("apt-get -qq update && apt-get -qq install -y busybox-static >&2")
        for name in ("docker", "podman"):
            host.check_output(f"tar -C / -cf - bin/busybox | {name} import - tiny:1")
            found[where, name] = Engine(host, where, name)
    return found


@pytest.fixture(params=[("cpu-12", "docker"), ("cpu-13", "podman")], ids="-".join)
def engine(engines, request):
    """Each engine once: the oldest docker and the newest podman. Its containers are removed afterwards."""
    found = engines[request.param]
    yield found
    found.host.run(f"{found.name} rm -f $({found.name} ps -aq)")


@dataclass
class Run:
    """Exit status and output of a run of the playbook."""

    rc: int
    output: str

    @property
    def changed(self) -> int:
        """Return the number of changes on all hosts."""
        found = [line.partition("changed=")[2].split()[0] for line in self.output.splitlines() if "changed=" in line]
        assert found, self.output
        return sum(map(int, found))

    @property
    def flat(self) -> str:
        """Return the output with its line breaks as blanks."""
        return " ".join(self.output.split())


@pytest.fixture(scope="session")
def playbook():
    """Run the role for an engine of one host, with other variables, as a user does."""

    def run(engine: Engine, *options: str, **variables: Any) -> Run:
        given = {"container_runtime_engine": engine.name, **variables}
        book = "molecule/role_container_runtime/engine.yml"
        command = ["ansible-playbook", "-i", str(INVENTORY), book, "--limit", engine.where, "-e", json.dumps(given)]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
        done = subprocess.run(
            [*command, *options], cwd=TOP, env=environment, capture_output=True, text=True, check=False
        )
        return Run(done.returncode, done.stdout + done.stderr)

    return run
