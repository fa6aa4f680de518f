# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way to the controller's terminal: recipes, and answers of hosts and of BMCs, may hold control characters."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any, Iterable

from ansible.utils.display import Display

from ...module_utils.common.foreign_text import escape_lines


def show(text: str) -> None:
    """Print a text; what would move the cursor, ring the bell or colour the terminal is escaped."""
    show_progress("")
    Display().display(escape_lines(text))


def show_json(document: Any) -> None:
    """Print a document as JSON that any program can read, in ASCII."""
    Display().display(json.dumps(document, indent=2).replace("\x7f", "\\u007f"))


def show_progress(text: str) -> None:
    """Show on a terminal what happens now, in place of what was shown before; "" removes it."""
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\033[K{escape_lines(text)[: columns - 1]}")
        sys.stderr.flush()


def warn(text: str) -> None:
    """Print a warning; as show() does, and once per run."""
    Display().warning(escape_lines(text))


def escaped(texts: Iterable[Any]) -> list[str]:
    """Return the warnings of a result, which Ansible prints as they are."""
    return [escape_lines(str(text)) for text in texts]
