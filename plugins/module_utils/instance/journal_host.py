# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the journal of this host."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from typing import Sequence

_COMMAND = ("journalctl", "--no-pager", "--quiet")
_TIMEOUT = 30.0


def read_journal(words: Sequence[str], most_bytes: int) -> list[str]:
    """Return the first lines that journalctl prints. Raises OSError where it prints nothing but an error."""
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen([*_COMMAND, *words], stdout=subprocess.PIPE, stderr=errors) as process:
            # What it has printed until then counts.
            timer = threading.Timer(_TIMEOUT, process.kill)
            timer.start()
            text = process.stdout.read(most_bytes) if process.stdout else b""
            timer.cancel()
            process.kill()
        errors.seek(0)
        problem = errors.read(1000).decode("utf-8", "replace").strip()
    if problem and not text:
        raise OSError(f"journalctl: {problem}")
    return text.decode("utf-8", "replace").splitlines()
