# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a stand-in keeps what it knows on a host: the machine, the state of its kernel, the faults that are wanted."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping

HERE = Path(__file__).resolve().parent
MACHINES = HERE / "machines"


@dataclass(frozen=True)
class Answer:
    """What a tool says, and the status with which it ends.

    A ``daemon`` says it and stays, with these device files open, until it is told to end; ``note`` is what it is known
    by while it runs.
    """

    rc: int = 0
    out: str = ""
    err: str = ""
    daemon: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Machine:
    """A machine as its folder describes it.

    ``functions`` are groups of PCI functions: id, class (six digits), addresses, and numa (a node for each, or one for
    all), subsystem and files (name to text) where they have them. ``chip`` is what the vendor's stand-in says of each
    accelerator. ``kernel_modules`` are those that the kernel brings itself, ``boot_modules`` those of them that are
    loaded at boot.
    """

    name: str
    title: str
    vendor: str
    source: str
    architecture: str
    kernel: str
    boot_id: str
    processor: Mapping[str, Any]
    memory_gib: int
    functions: tuple[Mapping[str, Any], ...]
    chip: Mapping[str, Any] = field(default_factory=dict)
    kernel_modules: tuple[str, ...] = ()
    boot_modules: tuple[str, ...] = ()

    @classmethod
    def load(cls, name: str, folder: Path = MACHINES) -> Machine:
        """Return the machine of a folder."""
        file = folder / name / "machine.json"
        if not file.exists():
            known = ", ".join(sorted(path.name for path in folder.iterdir()))
            raise SystemExit(f"there is no machine {name}; there are {known}")
        return cls.from_dict({"name": name, **json.loads(file.read_text())})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Machine:
        """Return the machine that as_dict made plain."""
        tuples = {key: tuple(data.get(key, ())) for key in ("functions", "kernel_modules", "boot_modules")}
        return cls(**{**data, **tuples})

    def as_dict(self) -> dict[str, Any]:
        """Return the machine as plain data, JSON-serialisable."""
        return dict(vars(self))

    def addresses(self, *ids: str) -> list[str]:
        """Return where the functions of these ids (``10de:2335``) are, all of the vendor's with ``10de:``."""
        groups = (group for group in self.functions if group["id"].startswith(ids))
        return sorted(address for group in groups for address in group["addresses"])

    def chips(self) -> list[str]:
        """Return where the accelerators are."""
        return self.addresses(*self.chip["ids"])


class Place:
    """The stand-in's directories on a host.

    ``root`` is where /standin (the trees of the kernel), /var/lib/standin (state and faults), /usr/src and /lib/modules
    are: the host's own, or a test's.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root or os.environ.get("STANDIN_ROOT") or "/")
        self.state = self.root / "var/lib/standin"
        self.tree = self.root / "standin"
        self.sys = self.tree / "sys"
        self.proc = self.tree / "proc"

    def machine(self) -> Machine:
        """Return the machine that this host pretends to be."""
        return Machine.from_dict(json.loads((self.state / "machine.json").read_text()))

    def kernel(self) -> str:
        """Return the release of the kernel that runs."""
        return (self.proc / "sys/kernel/osrelease").read_text().strip()

    def fault(self, name: str) -> str | None:
        """Return what is in the file of a fault, None where it is not wanted. ``touch`` it, or write what it is for."""
        path = self.state / name
        return path.read_text().strip() if path.exists() else None

    def read(self, path: str) -> str:
        """Return the text of a file below the trees, empty where there is none."""
        file = self.tree / path
        return file.read_text().strip() if file.is_file() else ""

    def write(self, files: Mapping[str, str]) -> None:
        """Write files below the trees; a path that ends in a slash is a directory."""
        for path, text in files.items():
            target = self.tree / path
            if path.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text if text.endswith("\n") else f"{text}\n")

    def remove(self, path: str) -> None:
        """Remove what is below the trees, with the directories that it leaves empty."""
        target = self.tree / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        for parent in target.parents:
            if parent == self.tree or not parent.is_dir() or any(parent.iterdir()):
                return
            parent.rmdir()

    def log(self, *words: str) -> None:
        """Write down that a tool was called: tests look there for what was done, and in which order."""
        self.state.mkdir(parents=True, exist_ok=True)
        with open(self.state / "log", "a") as stream:
            stream.write(" ".join(words) + "\n")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one tool at a time change the state."""
        self.state.mkdir(parents=True, exist_ok=True)
        with open(self.state / "lock", "w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
