# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes of this host use a directory, and which instance each belongs to."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Iterable, Mapping

from ..common.files_host import text_of
from ..common.foreign_text import quote_foreign
from ..common.processes_host import texts_of_processes
from ..vllm.ports_host import unit_of

_REVISION = rb"[0-9a-f]{40}"
# An engine opens and maps some hundred files of its environment and its model.
_MOST_NAMES = 4096
_UNIT = re.compile(r"vllm@(.+)\.service\Z")


@dataclass(frozen=True)
class UsingProcess:
    """A process: its number and name, its instance (empty for others), the paths and revisions that it names.

    ``named`` is None for one that may use anything, because what it names is too much or cannot be read.
    """

    pid: int
    command: str
    instance: str
    named: frozenset[str] | None

    @property
    def description(self) -> str:
        """Return the process for a message."""
        return f"process {self.pid} ({self.command}{', which may use anything' if self.named is None else ''})"

    def uses(self, path: str) -> bool:
        """Return whether it names a path, something below it, or the revision at its end."""
        return (
            self.named is None
            or os.path.basename(path) in self.named
            or any(name == path or name.startswith(path + "/") for name in self.named)
        )


def read_processes(
    tops: Iterable[str], containers: Mapping[str, str] | None = None, proc: str = "/proc"
) -> list[UsingProcess]:
    """Return the processes that name a path below one of ``tops``, or a revision.

    They name it in the command line, as a directory, or as an open or mapped file. ``containers`` has the instance of
    each container's id; without it a process in a container counts as somebody else's.
    """
    places = b"|".join(re.escape(os.fsencode(top.rstrip("/"))) + rb"/[^\0\s]+" for top in sorted(set(tops)))
    wanted = re.compile(_REVISION + (b"|" + places if places else b""))
    found = []
    for pid, texts in texts_of_processes(proc):
        if pid == os.getpid():
            continue
        named: set[bytes] = set()
        for text in texts or ():
            named.update(wanted.findall(text))
            named.update(re.findall(_REVISION, text))
        is_unknown = texts is None or len(named) > _MOST_NAMES
        if named or is_unknown:
            command = quote_foreign(text_of(f"{proc}/{pid}/comm").strip())
            instance = _instance_of(text_of(f"{proc}/{pid}/cgroup"), containers or {})
            kept = None if is_unknown else frozenset(map(os.fsdecode, named))
            found.append(UsingProcess(pid, command, instance, kept))
    return sorted(found, key=lambda process: process.pid)


def _instance_of(cgroup: str, containers: Mapping[str, str]) -> str:
    unit = _UNIT.match(unit_of(cgroup) or "")
    if unit:
        return unit[1]
    return next((instance for identity, instance in containers.items() if identity in cgroup), "")
