# SPDX-License-Identifier: GPL-3.0-or-later
"""A page on the controller's disk, and its source files."""

import os
import stat
from pathlib import Path

from ...module_utils.common.files_host import publish
from ...module_utils.common.own_links_host import follow_links

FRAME = Path(__file__).with_name("frame")


class PageError(ValueError):
    """The page cannot be written as requested; the message is the whole sentence for the user."""


def read_parts(directory: Path) -> dict[str, str]:
    """Return the texts of a page's parts: frame, html, css and, if the page has a script, js.

    ``html`` is the content of the body. The frame around it, and how css and js begin, are the same for all pages.
    """
    parts = {"frame": _text(FRAME.with_suffix(".html")), "html": _text(directory / "page.html")}
    for name in ("css", "js"):
        page = directory / f"page.{name}"
        if page.exists():
            parts[name] = _text(FRAME.with_suffix(f".{name}")) + _text(page)
    return parts


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


class PageFile:
    """A text file that is replaced in one step; ``before`` is its text, None where it does not exist yet.

    A symbolic link of the user's or root's is followed, so that it stays one. A new file gets ``mode``, an existing one
    keeps its own. ``option`` names the user's option in messages.
    """

    def __init__(self, option: str, path: str, mode: int) -> None:
        """Read the file. Raises PageError where it cannot be read or no file can be created there."""
        self.path = path
        self.before: str | None = None
        self._option, self._mode = option, mode
        try:
            self.path = follow_links(path)
            found = os.stat(self.path).st_mode
            if not stat.S_ISREG(found):
                raise PageError(f"{option}: {path} is in the way: expected a file, or nothing yet")
            self._mode = stat.S_IMODE(found)
            with open(self.path, encoding="utf-8", errors="replace", newline="") as file:
                self.before = file.read()
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise PageError(f"{option}: {path} cannot be read: {exc.strerror}") from exc
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise PageError(f"{option}: {directory} is not a directory; create it first")

    def write(self, text: str) -> None:
        """Replace the file in one step. Raises PageError."""
        try:
            publish(self.path, text, self._mode)
        except OSError as exc:
            raise PageError(f"{self._option}: {self.path} cannot be written: {exc.strerror}") from exc
