# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program that measures: it may flood its output, or hang in a driver so that not even a kill ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO, Callable, Mapping, Sequence

# Bytes of the beginning and of the end of a stream: NCCL's log, and the results of a burn-in, have less than 1 MiB.
KEPT = 4 << 20


class RunningProgram:
    """A process in its own session that reads a text; of what it prints, the first and the last KEPT bytes are kept."""

    def __init__(
        self,
        argv: Sequence[str],
        text: str,
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
        change: Callable[[], None] | None = None,
    ) -> None:
        """Start it in a directory; the new process calls ``change`` before. Raises OSError."""
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env=environment,
            start_new_session=True,
            preexec_fn=change,
        )
        # Not before the caller can kill it: it gets no text from a process that is ended in between.
        self._writer = threading.Thread(target=_write, args=(self.process.stdin, text.encode()), daemon=True)
        self._kept = (bytearray(), bytearray())
        pairs = [
            (stream, kept) for stream, kept in zip((self.process.stdout, self.process.stderr), self._kept) if stream
        ]
        self._readers = [threading.Thread(target=_read, args=pair, daemon=True) for pair in pairs]
        for reader in self._readers:
            reader.start()

    def ends_within(self, seconds: float) -> bool:
        """Give it its text, and return whether it ends in this time."""
        if not self._writer.ident:
            self._writer.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def kill(self) -> None:
        """Kill it and the processes of its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def texts(self, seconds: float) -> tuple[str, str]:
        """Return its output and errors; what keeps the pipes open for longer than ``seconds`` is not waited for."""
        deadline = time.monotonic() + seconds
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        self.process.poll()
        out, err = (bytes(kept).decode("utf-8", "replace") for kept in self._kept)
        return out, err


def _write(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), stream:
        stream.write(data)


def _read(stream: IO[bytes], kept: bytearray) -> None:
    with stream:
        for part in iter(lambda: os.read(stream.fileno(), 1 << 16), b""):
            kept += part
            if len(kept) > 3 * KEPT:
                kept[KEPT:-KEPT] = b"\n"
