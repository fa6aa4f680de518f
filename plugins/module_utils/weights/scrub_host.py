# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings of the scrub that are still valid."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ..common.foreign_files_host import ForeignDirectory
from .files_host import read_stamp
from .plan import STAMP_NAME
from .scrub import REPORT, VERSION

TIMER = "/etc/systemd/system/weights-scrub.timer"
_KEYS = {"directory", "name", "expected", "found", "when", "withdrawn"}


def has_scrub(timer: str = TIMER) -> bool:
    """Return whether a scrub is installed; its timer is the last of its files to go."""
    return os.path.lexists(timer)


def describe_damage(root: str, report: str = REPORT) -> list[str]:
    """Return a sentence for each file below ``root`` that the scrub found damaged and that was not fetched again.

    Empty without a scrub, without damage, and where the report cannot be read.
    """
    data = read_json(report)
    entries = data.get("damaged") if data.get("version") == VERSION else None
    if not isinstance(entries, dict):
        return []
    below = os.path.join(root, "")
    return [
        _sentence(path, entry)
        for path, entry in sorted(entries.items())
        if path.startswith(below) and isinstance(entry, dict) and set(entry) >= _KEYS and _stands(entry)
    ]


def _stands(entry: dict[str, Any]) -> bool:
    """Whether the model exists and the file was not verified since; otherwise the stamp would list it again."""
    is_there, files = ForeignDirectory(entry["directory"]).has(STAMP_NAME), read_stamp(entry["directory"]).get("files")
    return is_there and not (entry["withdrawn"] and isinstance(files, dict) and entry["name"] in files)


def _sentence(path: str, entry: dict[str, Any]) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(entry["when"]))
    return (
        f"{path}: damaged when the scrub read it on {day}: found {entry['found']}, expected sha256 "
        f"{entry['expected']}; the role weights downloads it again if a manifest names its revision; otherwise remove "
        f"{entry['directory']}"
    )


def read_json(path: str) -> dict[str, Any]:
    """Return a file's mapping, or an empty one."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
