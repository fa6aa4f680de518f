# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from servers in messages: a terminal or a log must not obey it, and a message must stay readable."""

from typing import Any

# The characters of a server's text that a message shows; more would add nothing.
FOREIGN_CHARACTERS = 200


def escape_controls(text: str) -> str:
    """Return a text in which characters that do not print (controls, directions, surrogates) are escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def escape_lines(text: str) -> str:
    """Return a text of several lines in which every other character that does not print is an escape."""
    return "\n".join(map(escape_controls, text.split("\n")))


def escape_diff(diff: Any) -> Any:
    """Return a diff, or several, as Ansible prints them: as escape_lines does in each text, but for tabs."""
    if isinstance(diff, dict):
        return {key: escape_diff(value) for key, value in diff.items()}
    if isinstance(diff, list):
        return [escape_diff(each) for each in diff]
    return "\t".join(map(escape_lines, diff.split("\t"))) if isinstance(diff, str) else diff


def quote_foreign(text: object, most: int = FOREIGN_CHARACTERS) -> str:
    """Return a server's text for a message: in one line, without controls, and cut after ``most`` characters."""
    shown = str(text)
    return escape_controls(shown[:most]) + ("..." if len(shown) > most else "")
