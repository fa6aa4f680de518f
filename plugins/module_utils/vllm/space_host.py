# SPDX-License-Identifier: GPL-3.0-or-later
"""Report a file system that is too full for what vLLM writes while it starts."""

import os

from ..common.files_host import existing_above

# Compiled kernels and graphs of one model; a start that cannot write them fails, or compiles at every start.
CACHE_BYTES = 500_000_000
CACHE_FILES = 1000


def describe_full(path: str) -> str:
    """Return a sentence about a file system that is (nearly) full, empty if it has enough space."""
    found = os.statvfs(existing_above(path))
    free = found.f_bavail * found.f_frsize
    what = ""
    if free < CACHE_BYTES:
        what = f"{free / 1e6:.0f} MB free, expected {CACHE_BYTES / 1e6:.0f} MB or more"
    # A file system without an inode table reports 0 inodes.
    elif found.f_files and found.f_favail < CACHE_FILES:
        what = f"{found.f_favail} free inodes, expected {CACHE_FILES} or more"
    if not what:
        return ""
    return f"{path}: its file system has {what}; vLLM compiles into this directory when it starts; make room there"
