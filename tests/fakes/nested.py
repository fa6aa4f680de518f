# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories below each other: more than Python's recursion, open files and the kernel's longest path allow."""

from __future__ import annotations

import os
from pathlib import Path

DEPTH = 2500


def make_nested(top: Path) -> None:
    """Make a directory with as many below each other as its user likes to make."""
    top.mkdir()
    level = os.open(top, os.O_RDONLY)
    for _number in range(DEPTH):
        os.mkdir("d", dir_fd=level)
        below = os.open("d", os.O_RDONLY, dir_fd=level)
        os.close(level)
        level = below
    os.close(level)
