# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of records in the cache of an instance."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Any

from ..common.files_host import make_directories
from ..common.lines_host import write_line
from .record import file_name, head_of, line_of

# Of one file of records, and of files that are kept, beside those that other processes write: some 300,000 requests
# that no gateway has read.
FILE_BYTES, FILES = 4 * 1024 * 1024, 16
# Of records in one answer to a gateway.
ANSWER_BYTES = 1024 * 1024


class Records:
    """The files of records in ``directory``; a process writes its own, and reads all.

    ``number`` counts the records of this process, those too that could not be written: so a gateway sees how many are
    missing.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        # A clock that restarts with its host may name two processes alike.
        self.process = f"{time.time_ns()}-{os.getpid()}-{os.urandom(4).hex()}"
        self.number = 0
        self.file: int | None = None
        self.torn = False

    def add(self, record: dict[str, Any]) -> None:
        """Write a record; a disk that is full must not fail the request."""
        self.number += 1
        line = line_of(self.number, record)
        try:
            file = self._open()
            text = b"\n" + line if self.torn else line
            self.torn = os.write(file, text) < len(text)
        except OSError as exc:
            if not self.torn:
                write_line(f"usage of a request is not recorded: {exc}")
            self.torn = True

    def _open(self) -> int:
        if self.file is not None:
            state = os.fstat(self.file)
            if state.st_nlink and state.st_size < FILE_BYTES:
                return self.file
            os.close(self.file)
            self.file = None
        make_directories(self.directory, 0o750)
        names = self.names()
        self._keep_newest(names)
        path = os.path.join(self.directory, file_name(names, time.time_ns(), self.process))
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        # Another process of this user may hold it: nobody waits, and a file that is removed is made again.
        with contextlib.suppress(OSError):
            fcntl.flock(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return self.file

    def _keep_newest(self, names: list[str]) -> None:
        """Remove files that no process writes, but for the newest of them; ``names`` are from the oldest on."""
        unwritten = 0
        for path in (os.path.join(self.directory, name) for name in reversed(names)):
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_RDONLY)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    unwritten += 1
                    if unwritten >= FILES:
                        os.unlink(path)
                finally:
                    os.close(file)

    def names(self) -> list[str]:
        """Return the names of the files, the oldest first."""
        with contextlib.suppress(OSError):
            names = (name for name in os.listdir(self.directory) if name.endswith(".jsonl"))
            # By the number: that of a clock that had not been set yet has fewer digits.
            return sorted(names, key=lambda name: (name.find("."), name))
        return []

    def read(self, read: dict[str, int]) -> bytes:
        """Return what follows the offsets ``read``: for each file a line with its name and offset, then its lines."""
        found, room = [], ANSWER_BYTES
        for name in self.names():
            path, offset = os.path.join(self.directory, name), read.get(name, 0)
            try:
                if os.stat(path).st_size <= offset:
                    continue
                with open(path, "rb") as file:
                    file.seek(offset)
                    text = file.read(room)
            except OSError:
                continue
            # A line that is being written is for the next time.
            text = text[: text.rfind(b"\n") + 1]
            if text:
                found.append(head_of(name, offset + len(text)) + text)
                room -= len(text)
            if room <= 0:
                break
        return b"".join(found)
