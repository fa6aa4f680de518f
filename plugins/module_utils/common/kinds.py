# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds of values in plain words, for messages about what a user wrote or a server sent."""

import datetime
from collections.abc import Mapping

# The levels and characters of a value that a message shows. A server's answer may have more than Python can follow.
DEEPEST, LONGEST = 8, 200
# A boolean is also an int.
_KINDS = (
    (bool, "true or false"),
    (str, "a text"),
    ((int, float), "a number"),
    (Mapping, "a mapping"),
    ((list, tuple), "a list"),
    ((set, frozenset), "a set"),
    (datetime.date, "a date"),
    (bytes, "binary data"),
)


def name_kind(value: object) -> str:
    """Return the kind of a value in plain words.

    The name of its class would not help a user: Ansible's values have derived classes like _AnsibleTaggedStr.
    """
    if value is None:
        return "nothing"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "a value of another kind")


def show_value(value: object) -> str:
    """Return a value as a message shows it: in the words of YAML, and ``nothing`` for a key without a value.

    Python would say None, True and False, and the names of Ansible's derived classes.
    """
    text = "nothing" if value is None else _flow(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _flow(value: object, depth: int = 0) -> str:
    """Return a value in YAML's flow style; texts have quotes, and what lies deeper than a message can show is cut."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Mapping, list, tuple)) and value and depth == DEEPEST:
        return "{...}" if isinstance(value, Mapping) else "[...]"
    if isinstance(value, Mapping):
        pairs = (f"{_flow(key, depth + 1)}: {_flow(entry, depth + 1)}" for key, entry in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(entry, depth + 1) for entry in value) + "]"
    return value.isoformat() if isinstance(value, datetime.date) else repr(value)
