# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes of this host use a directory, and which instance each belongs to."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping

from ..common.files_host import bytes_of, listed, text_of
from ..common.foreign_text import quote_foreign
from ..vllm.ports_host import unit_of

_REVISION = rb"[0-9a-f]{40}"
_UNIT = re.compile(r"vllm@(.+)\.service\Z")


@dataclass(frozen=True)
class UsingProcess:
    """A process: its number and name, its instance (empty for others), the paths and revisions that it names."""

    pid: int
    command: str
    instance: str
    named: frozenset[str]

    @property
    def description(self) -> str:
        """Return the process for a message."""
        return f"process {self.pid} ({self.command})"

    def uses(self, path: str) -> bool:
        """Return whether it names a path, something below it, or the revision at its end."""
        return os.path.basename(path) in self.named or any(
            name == path or name.startswith(path + "/") for name in self.named
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
    for name in listed(proc):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        named: set[bytes] = set()
        for text in _texts(f"{proc}/{name}"):
            named.update(wanted.findall(text))
            named.update(re.findall(_REVISION, text))
        if named:
            command = quote_foreign(text_of(f"{proc}/{name}/comm").strip())
            instance = _instance_of(text_of(f"{proc}/{name}/cgroup"), containers or {})
            found.append(UsingProcess(int(name), command, instance, frozenset(map(os.fsdecode, named))))
    return sorted(found, key=lambda process: process.pid)


def _instance_of(cgroup: str, containers: Mapping[str, str]) -> str:
    unit = _UNIT.match(unit_of(cgroup) or "")
    if unit:
        return unit[1]
    return next((instance for identity, instance in containers.items() if identity in cgroup), "")


def _texts(directory: str) -> Iterator[bytes]:
    for name in ("cmdline", "maps"):
        yield bytes_of(f"{directory}/{name}")
    for link in ["cwd", "exe", *(f"fd/{name}" for name in listed(f"{directory}/fd"))]:
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            yield os.fsencode(os.readlink(f"{directory}/{link}"))
