# SPDX-License-Identifier: GPL-3.0-or-later
"""An Ironic, BMCs and systems in memory, with a clock that moves when somebody sleeps. For the tests of one run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.bmc_log import read_logs
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ironic import BusyError, IronicError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.job import Job, Settings, World
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.node import Account, HostKey
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.preflight import SILENT
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record, RecordFile
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ssh import Proof
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.states import PHASES
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.ask import Answer

from tests.fakes.provision_entries import IMAGE, entry, server

# What follows each state by itself, one poll later.
NEXT = {
    "verifying": "manageable", "deploying": "wait call-back", "wait call-back": "active", "deleting": "available",
    "cleaning": "clean wait", "clean wait": "manageable",
}  # fmt: skip
TARGETS = {
    ("enroll", "manage"): "verifying", ("manageable", "provide"): "available", ("available", "active"): "deploying",
    ("deploy failed", "active"): "deploying", ("wait call-back", "abort"): "deploy failed",
    ("active", "deleted"): "deleting", ("manageable", "clean"): "cleaning", ("clean wait", "abort"): "clean failed",
}  # fmt: skip


@dataclass
class FakeIronic:
    """Nodes by name. ``stuck`` holds hosts that stay in a state; ``broken`` raises for a host, or for all ("")."""

    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    macs: dict[str, list[str]] = field(default_factory=dict)
    drives: dict[str, Any] = field(default_factory=dict)
    cleaned: list[tuple[str, Any]] = field(default_factory=list)
    steps: dict[str, Any] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)

    def nodes(self) -> dict[str, dict[str, Any]]:
        if "" in self.broken:
            raise self.broken[""]
        for name, node in self.known.items():
            if self.stuck.get(name) != node["provision_state"]:
                before = node["provision_state"]
                node["provision_state"] = NEXT.get(before, before)
                if before == "clean wait":
                    node["power_state"] = "power off"
        return {name: dict(node) for name, node in self.known.items()}

    def create(self, node: dict[str, Any], mac: str) -> None:
        self._call("create", node["name"])
        self.known[node["name"]] = {**node, "provision_state": "enroll", "power_state": "power on"}
        self.macs[node["name"]] = [mac]

    def ports(self, name: str) -> list[str]:
        return self.macs.get(name, [])

    def add_port(self, name: str, mac: str) -> None:
        self._call("add_port", name)
        self.macs.setdefault(name, []).append(mac)

    def change(self, name: str, patch: Any) -> None:
        self.known[name].update({each["path"][1:]: each["value"] for each in patch})

    def order(self, name: str, target: str, drive: Any = None, steps: Any = ()) -> None:
        if steps:
            self.steps[name] = steps
        self._call(target, name)
        state = self.known[name]["provision_state"]
        if (state, target) not in TARGETS or self.known[name].get("maintenance"):
            raise IronicError(f"HTTP 400: {target} in {state}")
        self.known[name]["provision_state"] = TARGETS[state, target]
        self.drives[name] = drive or self.drives.get(name)

    def clean(self, name: str, steps: Any) -> None:
        self.order(name, "clean")
        self.cleaned.append((name, steps))

    def power(self, name: str, target: str, timeout: int) -> None:
        assert timeout
        self._call(target, name)
        if target == "power on":
            self.known[name]["power_state"] = "power on"
        elif target not in self.deaf:
            self.known[name]["power_state"] = "power off"
        else:
            self.known[name]["last_error"] = "the system did not stop"

    def forget(self, name: str) -> None:
        if name in self.known:
            self.set_aside(name)
            self.delete(name)

    def set_aside(self, name: str) -> None:
        self.known[name] |= {"maintenance": True, "maintenance_reason": "handed over"}

    def delete(self, name: str) -> None:
        self._call("forget", name)
        del self.known[name]

    def _call(self, what: str, name: str) -> None:
        self.calls.append((what, name))
        if name in self.broken:
            raise self.broken[name]

    def said(self, what: str) -> list[str]:
        return [call[1] for call in self.calls if call[0] == what]


class FakeSite:
    """Jobs, and the world that they see. ``servers`` and ``reasons`` are what the BMCs answer, by host."""

    def __init__(self, path: Any, count: int = 1, **settings: Any) -> None:
        self.ironic = FakeIronic()
        self.time, self.slept = 0.0, 0
        self.shown: list[str] = []
        self.firmware: Any = {"functions": {}, "sockets": 1, "nodes": 1}
        self.trusted: list[Any] = []
        self.systems: dict[str, Proof] = {}
        self.reasons: dict[str, str] = {}
        self.powers: dict[str, str] = {}
        self.ports: set[str] = set()
        self.logs: dict[str, Any] = {}
        self._keys = itertools.count(1)
        self.path = path / "provisioned.yml"
        values = {
            "ironic": self.ironic, "bmc_ca": True, "record_file": RecordFile(self.path), "known_hosts": path / "known",
            "deadlines": PHASES, "ssh_keys": ("ssh-ed25519 me",), **settings,
        }  # fmt: skip
        self.settings = Settings(**values)
        self.entries = [
            entry(f"gpu-{number:02d}", bmc=f"https://10.1.0.{number}", mac=f"52:54:00:00:00:{number:02x}",
                  address=f"10.0.1.{number + 10}/24", root_serial=f"DISK{number:04d}")
            for number in range(1, count + 1)
        ]  # fmt: skip
        self.servers = {
            each.host: server(serial=f"SRV{number:04d}", disks=()) for number, each in enumerate(self.entries, 1)
        }

    def jobs(self, *released: str) -> list[Job]:
        """Return new jobs with the records that are there, as another run would have them."""
        records = RecordFile(self.path).read()
        return [
            Job(each, IMAGE, Account("admin", "s3cret"), records.get(each.host, Record()), each.host in released,
                names=(str(each.address.ip),))
            for each in self.entries
        ]  # fmt: skip

    def world(self) -> World:
        return World(
            ask_bmcs=self._ask, answers=lambda address: address in self.ports or bool(self._system(address)),
            prove=self._prove, make_host_key=lambda host: HostKey(f"ssh-ed25519 {host}{next(self._keys)}", "private"),
            trust=lambda *words: self.trusted.append(words), now=lambda: self.time, sleep=self._sleep,
            date=lambda: "2026-11-28T18:00:00Z", show=self.shown.append, show_firmware=self._show_firmware,
        )  # fmt: skip

    def _show_firmware(self, _entry: Any, _key: str) -> Any:
        if isinstance(self.firmware, str):
            raise ProvisionError(self.firmware)
        return self.firmware

    def _ask(self, bmcs: Any) -> list[Answer]:
        answers = []
        for bmc in bmcs:
            reason = self.reasons.get(bmc.host)
            is_power = getattr(bmc.steps, "func", None) is None
            found = self.powers.get(bmc.host, "On") if is_power else self.servers[bmc.host]
            found = self.logs if getattr(bmc.steps, "func", None) is read_logs else found
            answers.append(Answer(bmc.host, None if reason else found, reason))
        return answers

    def _system(self, address: str) -> Proof | None:
        """Return the system that answers at an address: the one of its node's order, once that is written."""
        host = next(each.host for each in self.entries if str(each.address.ip) == address)
        if host in self.systems:
            return self.systems[host]
        node = self.ironic.known.get(host)
        if node and node["provision_state"] == "active":
            self.systems[host] = Proof(IMAGE.build_id, node["extra"]["order"], "status: done")
        return None

    def _prove(self, each: Any, key: str) -> Proof:
        self._system(str(each.address.ip))
        found = self.systems.get(each.host)
        record = RecordFile(self.path).read().get(each.host)
        if not found or not record or record.host_key != key:
            return Proof(reason="SSH: Host key verification failed.")
        return found

    def _sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept += 1
        assert self.slept < 5000, "the run does not end"


__all__ = ["SILENT", "BusyError", "FakeIronic", "FakeSite"]
