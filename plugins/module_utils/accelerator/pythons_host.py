# SPDX-License-Identifier: GPL-3.0-or-later
"""The Pythons of a host that a virtual environment can be made with. Runs on the host."""

from __future__ import annotations

import glob
import os
import re
from typing import Sequence

# The first is that of the operating system; a site's own builds are usually in the second.
DIRECTORIES = ("/usr/bin", "/usr/local/bin")
_NAME = re.compile(r"python3\.\d+\Z")


def read_pythons(directories: Sequence[str] = DIRECTORIES) -> list[str]:
    """Return the paths of the host's Pythons, the one that ``python3`` is first, then by directory and name.

    Their names state their versions (python3.12), so none is run.
    """
    found: list[str] = []
    for directory in directories:
        paths = sorted(path for path in glob.glob(f"{glob.escape(directory)}/python3.*") if _NAME.search(path))
        default = os.path.join(directory, os.path.basename(os.path.realpath(os.path.join(directory, "python3"))))
        found += sorted((path for path in paths if os.access(path, os.X_OK)), key=lambda path: path != default)
    return found
