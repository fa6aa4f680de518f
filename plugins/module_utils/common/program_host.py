# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a newer release of the program that runs has been installed."""

from __future__ import annotations

import os
import sys
import time

# Seconds without another change: the files of a program are written one after the other.
SETTLED = 5.0
_PACKAGE = "ansible_collections."


class Program:
    """The files of this process's program: the door and the modules of the collection that it has imported."""

    def __init__(self) -> None:
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(_PACKAGE)]
        files = [getattr(module, "__file__", None) for module in modules]
        self._paths = sorted({os.path.abspath(path) for path in (*files, sys.argv[0]) if path})
        self._times = self._read()

    def replaced(self) -> bool:
        """Return whether the files were replaced, and none of them just now."""
        times = self._read()
        return times != self._times and time.time() - max(times, default=0) / 1e9 >= SETTLED

    def _read(self) -> list[int]:
        found = []
        for path in self._paths:
            try:
                found.append(os.stat(path).st_mtime_ns)
            except OSError:
                found.append(0)
        return found
