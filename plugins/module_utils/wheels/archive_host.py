# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files out of wheels that anybody may have made: neither its list nor a file of it fills the memory."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from typing import Iterator

from ..common.files_host import open_regular

# Of the list of the files in a wheel, which is some hundred thousand files.
MOST_LISTED = 16 << 20


class BoundedWheel(io.BufferedReader):
    """The bytes of a wheel; no list of its files fills the memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return some bytes: a wheel says itself how long its list is."""
        if size is not None and size > MOST_LISTED:
            raise zipfile.BadZipFile(f"its list of files has more than {MOST_LISTED >> 20} MiB")
        return super().read(MOST_LISTED if size is None or size < 0 else size)


@contextlib.contextmanager
def opened_wheel(path: str) -> Iterator[zipfile.ZipFile]:
    """Open a wheel. Raises OSError and zipfile.BadZipFile."""
    raw = io.FileIO(path, opener=lambda name, flags: open_regular(name, flags | os.O_NOFOLLOW))
    with BoundedWheel(raw) as file, zipfile.ZipFile(file) as archive:
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a file of a wheel, of at most ``most`` bytes, whatever the wheel says of its size.

    Raises zipfile.BadZipFile, and what zipfile raises for a damaged one.
    """
    member = archive.getinfo(name)
    # Others are unpacked as a whole, and a few bytes of them can be gigabytes.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name} is packed with method {member.compress_type}, expected 0 or 8 (deflate)")
    with archive.open(member) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise zipfile.BadZipFile(f"{name} has more than {most} bytes")
    return content
