# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the last fault of each instance of this host from the journal of the health service."""

from __future__ import annotations

import re
from typing import Any

from ..instance.journal_host import read_journal

# Lines of the journal about a new mark, the newest first (HealthService.see).
MOST_LINES, MAX_BYTES = 200, 256 * 1024
_WORDS = (
    "--output=short-unix", "--unit=vllm-health.service", "--reverse", f"--lines={MOST_LINES}", "--grep= is sick: ",
)  # fmt: skip
_LINE = re.compile(r"(\d{1,12})\.\d+ \S+ \S+: ([\w-]{1,64}) is sick: (.{1,300})")


def read_last_faults() -> dict[str, dict[str, Any]]:
    """Return the last fault of each instance by its name: ``at``, seconds since the epoch, and ``fault``, in words.

    Nothing for a host without the service. Raises OSError where the journal cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in read_journal(_WORDS, MAX_BYTES):
        if match := _LINE.match(line):
            found.setdefault(match[2], {"at": int(match[1]), "fault": match[3]})
    return found
