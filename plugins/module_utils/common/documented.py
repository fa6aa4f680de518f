# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the options of a module from its documentation: they are written down once.

A host has no YAML library, so this reads the part of YAML that the documentation of options needs: mappings and lists
in block form, and values that are JSON, a list in brackets or a text in one line.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Sequence

# What the documentation says for people only.
_PROSE = ("description", "version_added")


def documented_arguments(documentation: str, secret: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the argument spec in a module's documentation, without its fragments; ``secret`` names masked options."""
    lines = documentation.partition("\noptions:\n")[2].splitlines()
    end = next((number for number, line in enumerate(lines) if line and line[0] != " "), len(lines))
    return _specs(lines[:end], secret)


def _specs(lines: Sequence[str], secret: Sequence[str]) -> dict[str, dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = {}
    for name, option in _entries(lines):
        # Without no_log, Ansible would warn of each name that sounds like a secret, such as max_tokens.
        specs[name] = {"no_log": name in secret}
        for key, value in _entries(option[1:]):
            if key == "suboptions":
                specs[name]["options"] = _specs(value[1:], secret)
            elif key not in _PROSE:
                specs[name][key] = _value(value)
    return specs


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys of a mapping, each with the lines of its value: the rest of its own line first."""
    depth = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    starts = [number for number, line in enumerate(lines) if line[depth : depth + 1] not in ("", " ", "-")]
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        key, _colon, rest = lines[start].strip().partition(":")
        yield key, [rest.strip(), *lines[start + 1 : end]]


def _value(lines: Sequence[str]) -> Any:
    if not lines[0]:
        return [_scalar(line.strip()[2:]) for line in lines[1:]]
    text = " ".join(line.strip() for line in lines)
    if text.startswith("[") and text != "[]":
        return [_scalar(item.strip()) for item in text[1:-1].split(",")]
    return _scalar(text)


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
