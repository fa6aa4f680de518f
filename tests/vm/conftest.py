# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest of bin/vm and what is done with it: commands, playbooks, and what these say where they fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
# Enough for compiling on a machine that does other things too.
PATIENCE = 3600
FAILURE = re.compile(r"^\[ERROR\]: Task failed: (.*?)\nOrigin: ", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """How a playbook ended: ``failures`` are the messages of tasks that failed, in order."""

    rc: int
    failures: tuple[str, ...]
    text: str


class Guest:
    """The guest, as a container or as a machine: whichever of them was started last."""

    def __init__(self):
        home = Path(os.environ.get("LAB_HOME") or TOP / ".lab")
        self.directory = home / (os.environ.get("VM_NAME") or "vm") / "machine"
        self.contained = False

    def tool(self, *words):
        """Run bin/vm and return what it prints."""
        command = [sys.executable, TOP / "tools/vm/__main__.py", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        print(done.stdout)
        return done.stdout

    def enter(self, words, contained):
        """Start the guest as a container or as a machine."""
        self.tool(*words)
        self.contained = contained

    def kernels(self):
        return self.tool("kernels").split()

    def run(self, command):
        """Run a command in the guest and return how it ended."""
        words = [sys.executable, str(TOP / "tools/vm/__main__.py"), "ssh", command]
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)

    def says(self, command):
        """Return what a command in the guest prints; it must not fail."""
        done = self.run(command)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def play(self, book, *words, **variables):
        """Play a book of this directory."""
        more = json.dumps({"guest_contained": self.contained, **variables})
        command = ["ansible-playbook", "-i", self.directory / "inventory.json", HERE / book, "-e", more, *words]
        environment = {
            **os.environ,
            "PATH": f"{TOP / '.venv/bin'}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
        }
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=PATIENCE, cwd=TOP, env=environment
        )
        text = f"{done.stdout}\n{done.stderr}"
        print(text)
        return Outcome(done.returncode, tuple(FAILURE.findall(text)), text)


def stand_in(top, kernel):
    """Write the trees that show an NVIDIA L40S, which is not there.

    The machine's has its chip alone: the rest is what its kernel says. A container would see the kernel of the
    controller, so its trees have the guest's kernel, which runs no module.
    """
    for tree in ("machine", "container"):
        chip = top / tree / "sys/bus/pci/devices/0000:10:00.0"
        chip.mkdir(parents=True)
        for name, text in {"vendor": "0x10de", "device": "0x26b9", "class": "0x030200"}.items():
            (chip / name).write_text(f"{text}\n")
        for name in ("devices", "class"):
            (top / tree / "sys" / name).symlink_to(f"/sys/{name}")
    (top / "machine/sys/module").symlink_to("/sys/module")
    (top / "container/sys/module").mkdir()
    boot = top / "container/proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("before the first boot\n")
    (top / "container/proc/sys/kernel/osrelease").write_text(f"{kernel}\n")
    for name in ("cpuinfo", "meminfo"):
        (top / "container/proc" / name).symlink_to(f"/proc/{name}")


def pytest_configure(config):
    config.addinivalue_line("markers", "whole: not in the short form that CI runs")


@pytest.fixture(scope="session")
def guest():
    """A guest that no role has seen; it is gone afterwards unless VM_KEEP is set.

    With VM_REUSE it is the one that was kept: a test of the machine is tried again without compiling anew.
    """
    guest = Guest()
    if not os.environ.get("VM_REUSE"):
        guest.tool("root")
        stand_in(guest.directory / "root" / "standin", guest.kernels()[0])
    yield guest
    if not os.environ.get("VM_KEEP"):
        guest.tool("down")
