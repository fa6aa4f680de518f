# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a rollout's report on the controller."""

import os
from pathlib import Path
from typing import Any

from ..pages.file import PageError, PageFile, read_parts
from .journal import JOURNAL, read

PARTS = Path(__file__).resolve().parent / "rollout_page"
# The report quotes errors of hosts in full, so only the user who ran the rollout can read it.
MODE = 0o600


class ReportFileError(ValueError):
    """A file of the report cannot be read or written; the message is the whole sentence."""


def page_parts() -> dict[str, str]:
    """Return the texts of the page's parts: html, css and js."""
    return read_parts(PARTS)


def read_journal(path: str) -> list[dict[str, Any]]:
    """Return the events of a journal, or of the one in a rollout's directory. Raises ReportFileError."""
    file = os.path.join(path, JOURNAL) if os.path.isdir(path) else path
    try:
        return read(file)
    except FileNotFoundError as exc:
        raise ReportFileError(
            f"journal: {file} is not there; expected the {JOURNAL} of a rollout, in its directory below "
            "rollout_state_dir"
        ) from exc
    except OSError as exc:
        raise ReportFileError(f"journal: {file} cannot be read: {exc.strerror}") from exc


def write_changed(option: str, path: str, text: str, check_mode: bool) -> bool:
    """Write a text to a file that does not hold it already; return whether the file changed.

    An existing file keeps its mode. Raises ReportFileError.
    """
    try:
        file = PageFile(option, path, MODE)
        is_new = file.before != text
        if is_new and not check_mode:
            file.write(text)
    except PageError as exc:
        raise ReportFileError(str(exc)) from exc
    return is_new
