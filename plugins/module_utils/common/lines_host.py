# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the lines of a program, which systemd puts into the journal."""

from __future__ import annotations

import sys


def write_line(text: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_error(text: str) -> None:
    """Write a line to standard error at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
