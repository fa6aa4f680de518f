# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of the stand-in that stay: they show in /standin/proc with device files open, as the real ones do."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Sequence

from tests.standins.place import Place


def stay(place: Place, name: str, nodes: Sequence[str], note: str = "") -> None:
    """Be a program that has device files open, until SIGTERM."""
    enter(place, os.getpid(), name, nodes, note)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    try:
        while True:
            signal.pause()
    finally:
        leave(place, os.getpid(), name)


def enter(place: Place, pid: int, name: str, nodes: Sequence[str], note: str = "", cgroup: str | None = None) -> None:
    """Put a program into the process table of the stand-in, with these device files open."""
    place.log("start", name)
    if cgroup is None:
        cgroup = Path("/proc/self/cgroup").read_text()
    home = f"proc/{pid}"
    place.write({f"{home}/comm": name, f"{home}/cmdline": f"{name}\0", f"{home}/cgroup": cgroup, f"{home}/fd/": ""})
    for number, node in enumerate(nodes, start=3):
        (place.tree / home / "fd" / str(number)).symlink_to(node)
    (place.state / f"daemon-{name}").write_text(note)


def leave(place: Place, pid: int, name: str) -> None:
    """Take a program out of the process table."""
    place.log("stop", name)
    shutil.rmtree(place.proc / str(pid), ignore_errors=True)
    (place.state / f"daemon-{name}").unlink(missing_ok=True)


def running(place: Place, name: str) -> str | None:
    """Return the note of a program that runs, None where it does not."""
    return place.fault(f"daemon-{name}")
