# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the last fault of each instance of this host from the journal of the health service."""

from __future__ import annotations

import re
import subprocess
from typing import Any

# Lines of the journal about a new mark, the newest first (HealthService.see).
MOST_LINES, MAX_BYTES = 200, 256 * 1024
_JOURNAL = [
    *("journalctl", "--no-pager", "--quiet", "--output=short-unix", "--unit=vllm-health.service"),
    *("--reverse", f"--lines={MOST_LINES}", "--grep= is sick: "),
]
_LINE = re.compile(r"(\d{1,12})\.\d+ \S+ \S+: ([\w-]{1,64}) is sick: (.{1,300})")


def read_last_faults() -> dict[str, dict[str, Any]]:
    """Return the last fault of each instance by its name: ``at``, seconds since the epoch, and ``fault``, in words.

    Nothing for a host without the service. Raises OSError where there is no journal.
    """
    with subprocess.Popen(_JOURNAL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        text = process.stdout.read(MAX_BYTES) if process.stdout else b""
        process.kill()
    found: dict[str, dict[str, Any]] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        if match := _LINE.match(line):
            found.setdefault(match[2], {"at": int(match[1]), "fault": match[3]})
    return found
