# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the secrets of a command out of every text that is printed, errors included."""

from __future__ import annotations

import re
from typing import Any, Iterator, Sequence

from ...module_utils.common.credentials import MASK, redact_credentials
from ..options.secret_names import is_secret

# How much of a value is kept of each name in it: of key=key=... every one has all the others as its value.
_LONGEST = 256
# A variable with its value behind it, in a shell, a unit or YAML; a flag with its value; what tokens of hubs look like.
_VARIABLE = re.compile(
    r"""\b(\w+)(?=(?:["']?[ \t]*(?:=|:[ \t])|["'][ \t]*:)[ \t]*["']?(?:(?:bearer|basic)[ \t]+)?"""
    rf"""([^\s"']{{1,{_LONGEST}}}))""",
    re.I,
)
_FLAG = re.compile(
    r"""(?<![\w-])--?(\w[\w-]{0,60})(?=["']?(?:=|,?\s+)(?:-\s+)?["']?(?!-)"""
    rf"""([^\s"',\]]{{1,{_LONGEST}}}))"""
)
# Each with what its values end before.
_ENDS = ((_VARIABLE, re.compile(r"""[\s"']|\Z""")), (_FLAG, re.compile(r"""[\s"',\]]|\Z""")))
_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-)[A-Za-z0-9_-]{6,}")
# Shorter ones would be found everywhere.
_SHORTEST = 4


def redact(value: Any, command: str) -> Any:
    """Return a text, or plain data, without the secrets of a command."""
    return _without(sorted(secrets_of(command), key=len, reverse=True), value)


def _without(secrets: Sequence[str], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(secrets, entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without(secrets, entry) for entry in value]
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = value.replace(secret, MASK)
    return redact_credentials(value)


def secrets_of(command: str) -> set[str]:
    """Return the values in a command that look like secrets."""
    found = set(_TOKEN.findall(command))
    for pattern, ends in _ENDS:
        found |= set(_values(command, pattern, ends))
    return {value for value in found if len(value) >= _SHORTEST and not value.startswith(("$", "{{"))}


def _values(command: str, pattern: re.Pattern[str], ends: re.Pattern[str]) -> Iterator[str]:
    """Yield the value of each secret; one that is long and within another only to its bound."""
    end = 0
    for found in pattern.finditer(command):
        name, value = found.groups()
        if not is_secret(name, value):
            continue
        if len(value) == _LONGEST and found.start(2) >= end:
            end = ends.search(command, found.start(2)).start()  # type: ignore[union-attr]
            value = command[found.start(2) : end]
        yield value
