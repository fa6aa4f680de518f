# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory with an inventory in it, and Ansible's commands run there as its user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

TOP = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@dataclass
class Listed:
    """What ``ansible-inventory --list`` said: hosts and children of each group, variables of each host."""

    groups: Mapping[str, Mapping[str, list[str]]]
    variables: Mapping[str, Mapping[str, Any]]
    warnings: str

    def hosts(self, group: str) -> set[str]:
        """Return the hosts of a group and of all below it."""
        entry = self.groups.get(group, {})
        return set(entry.get("hosts", [])).union(*(self.hosts(child) for child in entry.get("children", [])))

    def of(self, host: str) -> set[str]:
        """Return the groups that a host is in, itself or through others."""
        return {group for group in self.groups if host in self.hosts(group)} - {"all", "ungrouped"}


@dataclass
class Site:
    """``top`` is where the commands are run, ``environment`` is added to what they see. Nothing of a user's is read."""

    top: Path
    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of Ansible's commands; without ``check`` it may fail."""
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]], cwd=self.top, env=self.settings(), capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{words}:\n{done.stdout}\n{done.stderr}"
        return done

    def list(self, *options: str) -> Listed:
        """Return what the inventory of this directory's ansible.cfg, or the one named by options, holds."""
        done = self.run("ansible-inventory", "--list", *options)
        document = json.loads(done.stdout)
        variables = plain(document.pop("_meta")["hostvars"])
        return Listed(document, variables, " ".join(done.stderr.split()))

    def settings(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "NETBOX_"))}
        own = {
            "HOME": str(self.home), "ANSIBLE_HOME": str(self.home / ".ansible"), "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"), "COLUMNS": "500",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        return {**kept, **own, **self.environment}


def plain(value: Any) -> Any:
    """Return a value without the marks that Ansible shows texts with that it will not take for templates."""
    if isinstance(value, dict):
        return (
            value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else {k: plain(v) for k, v in value.items()}
        )
    return [plain(entry) for entry in value] if isinstance(value, list) else value
