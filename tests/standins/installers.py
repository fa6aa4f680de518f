# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a vendor's .run file: a script that has the vendor's stand-in do what its installer does."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.standins.packages import TOOL, write

# The name is in it twice, because users rename files, and so that two files never have the same checksum.
TEXT = """#!/bin/sh
# {file}: a stand-in for a self-extracting archive.
exec /usr/bin/python3 {tool} run-file {vendor} '{file}' "$@"
"""


def write_run_file(vendor: str, file: str, directory: Path, corrupt: bool = False) -> str:
    """Write one installer; return the sha256 that a site would put down for it. A corrupt one has other bytes."""
    text = TEXT.format(file=file, tool=TOOL, vendor=vendor)
    write(directory / file, f"{text}# cut off" if corrupt else text)
    return hashlib.sha256(text.encode()).hexdigest()
