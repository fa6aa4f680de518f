# SPDX-License-Identifier: GPL-3.0-or-later
"""Why packages could not be installed, as text for an error message."""

import re
from typing import Any, Mapping

# dpkg prints its reasons between lines of progress; the message of apt's module does not contain them.
_CAUSES = re.compile(r"dpkg: error|cannot |failed |E: ")


def describe_packages(result: Mapping[str, Any]) -> str:
    """Return the lines of apt and dpkg that name the cause, each once; the task's message where there are none."""
    failed = [item for item in result.get("results") or [result] if item.get("failed")]
    lines = [
        line.strip()
        for stream in ("stdout", "stderr")
        for item in failed
        for line in str(item.get(stream) or "").splitlines()
    ]
    return " | ".join(dict.fromkeys(filter(_CAUSES.match, lines))) or str(result.get("msg") or "")
