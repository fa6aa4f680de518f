# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import serving_host

from tests.lab_host import connect, prepared

INVENTORY = Path(__file__).resolve().parents[3] / ".config/molecule/inventory/container"


@dataclass
class Served:
    """One instance of vLLM in a container."""

    host: Any
    engine: str
    octet: int
    name: str
    port: int

    @property
    def unit(self) -> str:
        return f"vllm@{self.name}"

    @property
    def container(self) -> str:
        return f"vllm-{self.name}"

    @property
    def url(self) -> str:
        return f"http://{os.environ['LAB_SUBNET_PREFIX']}.{self.octet}:{self.port}"

    def show(self, field: str) -> str:
        """Return what systemd says of the unit."""
        return self.host.check_output("systemctl show -P %s %s", field, self.unit)

    def starts(self) -> int:
        """Return how often the unit has become active in this boot."""
        wanted = f"Started {self.unit}.service"
        return int(self.host.check_output(f"journalctl -b -u {self.unit} --no-pager | grep -c '{wanted}' || true"))

    def inspect(self) -> dict:
        """Return what the engine says of the container."""
        return json.loads(self.host.check_output("%s inspect %s", self.engine, self.container))[0]

    def pid(self) -> str:
        """Return the number that vLLM's own process has on the host; an engine may put another before it."""
        command = f"^/opt/vllm/bin/python -m vllm.entrypoints.openai.api_server .*/{self.name}.yaml"
        return self.host.check_output("pgrep -f %s", command)

    def chat(self) -> str:
        return serving_host.chat(self.url)

    def stream_and_stop(self) -> serving_host.Stream:
        """Stop the unit while it answers; return the answer."""
        with prepared(f"cpu-{self.octet}", f"systemctl stop --no-block {self.unit}") as stop:
            stream = serving_host.Stream(self.url)
            stop()
        return stream

    def journal(self) -> str:
        return serving_host.journal(self.host, self.unit)

    def wait_active(self) -> None:
        serving_host.wait_active(self.host, unit=self.unit)

    def wait_started_again(self, before: str) -> None:
        """Wait until another container serves than the one whose id was `before`."""
        deadline = time.monotonic() + 400
        while self.host.run("%s inspect -f '{{.Id}}' %s", self.engine, self.container).stdout.strip() in ("", before):
            if time.monotonic() > deadline:
                pytest.fail(self.journal())
            time.sleep(1)
        self.wait_active()


@pytest.fixture(scope="session")
def fleet():
    """Every instance of the scenario; asked for at once, because a start takes half a minute and waits are shared."""
    hosts = {name: connect(name) for name in ("cpu-12", "cpu-13")}
    return [
        Served(hosts["cpu-12"], "docker", 12, "chat", 8000),
        Served(hosts["cpu-13"], "podman", 13, "chat", 8000),
        Served(hosts["cpu-13"], "podman", 13, "second", 8001),
    ]


@pytest.fixture
def serving(fleet):
    """The same instances, each with its unit active."""
    for instance in fleet:
        instance.wait_active()
    return fleet


@pytest.fixture(params=[0, 1], ids=["docker", "podman"])
def chat_instance(serving, request):
    """The instance chat under each of the two engines."""
    return serving[request.param]


@pytest.fixture(scope="session")
def playbook():
    """Run a playbook of the checkout on the scenario's hosts, as a user does."""
    return partial(serving_host.playbook, inventories=("-i", str(INVENTORY)))
