# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way to the controller's terminal: recipes, and answers of hosts and of BMCs, may hold control characters."""

from __future__ import annotations

import json
from typing import Any, Iterable

from ansible.utils.display import Display

from ...module_utils.common.foreign_text import escape_lines


def show(text: str) -> None:
    """Print a text; what would move the cursor, ring the bell or colour the terminal is escaped."""
    Display().display(escape_lines(text))


def show_json(document: Any) -> None:
    """Print a document as JSON that any program can read, in ASCII."""
    Display().display(json.dumps(document, indent=2).replace("\x7f", "\\u007f"))


def warn(text: str) -> None:
    """Print a warning; as show() does, and once per run."""
    Display().warning(escape_lines(text))


def escaped(texts: Iterable[Any]) -> list[str]:
    """Return the warnings of a result, which Ansible prints as they are."""
    return [escape_lines(str(text)) for text in texts]
