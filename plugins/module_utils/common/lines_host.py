# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the lines of a program, for the journal or a terminal, which must not obey a text from outside."""

import sys

from .foreign_text import escape_lines


def write_line(text: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{escape_lines(text)}\n")
    sys.stdout.flush()


def write_error(text: str) -> None:
    """Write a line to standard error at once."""
    sys.stderr.write(f"{escape_lines(text)}\n")
    sys.stderr.flush()
