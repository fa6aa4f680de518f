# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the inventory with the clients, and the terminal that shows a new key."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Mapping, Sequence

from ...module_utils.common.files_host import publish
from ..common.inventory_files import inventory_texts
from .client_lines import NAMED, NotEditableError, names_in

# Set where a program runs Ansible and stores all that a terminal would show.
RECORDERS = ("RUNNER_OMIT_EVENTS", "AWX_ISOLATED_DATA_DIR", "SEMAPHORE_TASK_DETAILS_ID", "CI")


def find_file(sources: Sequence[str], names: Sequence[str]) -> tuple[Path | None, str, str]:
    """Return the file of the inventory with the clients and its text, or None, and why there is none to edit.

    ``sources`` are those of the inventory; ``names`` are the clients that a gateway has from it.
    """
    holding = {path.resolve(): text for path, text in inventory_texts(sources) if NAMED.search(text)}
    if len(holding) != 1:
        few = f"{len(holding)} files of the inventory set" if holding else "no file of the inventory sets"
        return None, "", f"{few} gateway_clients"
    ((path, text),) = holding.items()
    try:
        found = names_in(text)
    except NotEditableError as exc:
        return None, "", f"{path}: {exc}"
    if sorted(found) != sorted(names):
        return None, "", f"{path}: gateway_clients has other clients than the gateway"
    return path, text, ""


def write_file(path: Path, text: str) -> None:
    """Replace a file, which keeps its mode. Raises OSError."""
    publish(str(path), text, stat.S_IMODE(path.stat().st_mode))


def open_terminal(process: int, environment: Mapping[str, str]) -> int:
    """Return a descriptor of the terminal of a process. Raises OSError where it has none, or a program records it.

    Ansible's own output could go to its log file too, and its workers have no terminal.
    """
    recorder = next((name for name in RECORDERS if environment.get(name)), None)
    if recorder:
        raise OSError(f"the output of this run is stored ({recorder} is set)")
    for number in (2, 1, 0):
        path = f"/proc/{process}/fd/{number}"
        with contextlib.suppress(OSError):
            if not stat.S_ISCHR(os.stat(path).st_mode):
                continue
            descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
            if os.isatty(descriptor):
                return descriptor
            os.close(descriptor)
    raise OSError("this run has no terminal")
