# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scrub of the weights finds, and the report of it: intact, damaged and skipped files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

REPORT = "/var/lib/baremetal-inference/weights-scrub.json"
VERSION = 1
NO_FILE = "no file"


@dataclass(frozen=True)
class Pinned:
    """A file with its bytes and its sha256 from a stamp."""

    directory: str
    name: str
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """The file's path on the host."""
        return os.path.join(self.directory, self.name)


@dataclass
class Report:
    """The results: when each file was last found intact, which files are damaged, and which were skipped and why."""

    checked: dict[str, float] = field(default_factory=dict)
    damaged: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the content of the report's file."""
        parts = {"checked": self.checked, "damaged": self.damaged, "skipped": self.skipped}
        return {"version": VERSION, **self.run, **parts}

    def keep_present(self, present: Mapping[str, Pinned], waiting: Iterable[str]) -> None:
        """Forget files that are in no stamp; a damaged one of ``waiting`` was not downloaded again yet."""
        kept = {*present, *waiting}
        self.skipped = {}
        self.checked = {path: when for path, when in self.checked.items() if path in present}
        self.damaged = {path: entry for path, entry in self.damaged.items() if path in kept}

    def order(self, present: Iterable[str]) -> list[str]:
        """Return paths in the order in which they are read: the oldest check first."""
        return sorted(present, key=lambda path: (self.checked.get(path, 0), path))

    def add_intact(self, pinned: Pinned, now: int) -> None:
        """Add a file with the expected content."""
        self.checked[pinned.path] = now
        self.damaged.pop(pinned.path, None)

    def add_damaged(self, pinned: Pinned, found: str, withdrawn: bool, now: int) -> str:
        """Add a file with another content; return the message for the journal."""
        self.checked.pop(pinned.path, None)
        self.damaged[pinned.path] = {
            "directory": pinned.directory,
            "name": pinned.name,
            "expected": pinned.sha256,
            "found": found,
            "when": now,
            "withdrawn": withdrawn,
        }
        left = "" if withdrawn else "; its stamp cannot be changed, so the role weights will not find the damage"
        return f"{pinned.path}: damaged: found {found}, expected sha256 {pinned.sha256}{left}"

    def summary(self) -> str:
        """Return the line for the journal at the end."""
        run = self.run
        begin = "read" if run["finished"] else "stopped after"
        figures = f"{run['files']} files, {run['bytes'] / 1e9:.1f} GB in {run['seconds']} s"
        return f"{begin} {figures}; damaged: {len(self.damaged)}, skipped: {len(self.skipped)}"


def parse_report(document: Mapping[str, Any]) -> Report:
    """Return the report of the previous run; an empty one if the document is invalid."""
    checked, damaged = document.get("checked"), document.get("damaged")
    if document.get("version") != VERSION or not isinstance(checked, dict) or not isinstance(damaged, dict):
        return Report()
    times = {name: when for name, when in checked.items() if isinstance(when, (int, float))}
    valid = {
        name: entry
        for name, entry in damaged.items()
        if isinstance(entry, dict) and {"found", "directory"} <= set(entry)
    }
    return Report(times, valid)
