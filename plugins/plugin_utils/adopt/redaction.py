# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the secrets of a command out of every text that is printed, errors included."""

from __future__ import annotations

import re
from typing import Any

from ...module_utils.common.credentials import MASK, redact_credentials
from ..options.secret_names import is_secret

# A variable with its value behind it, in a shell, a unit or YAML; a flag with its value; what tokens of hubs look like.
_VARIABLE = re.compile(
    r"""\b(\w+)(?=(?:["']?[ \t]*(?:=|:[ \t])|["'][ \t]*:)[ \t]*["']?(?:(?:bearer|basic)[ \t]+)?([^\s"']+))""", re.I
)
_FLAG = re.compile(r"""(?<![\w-])--?(\w[\w-]{0,60})(?=["']?(?:=|,?\s+)(?:-\s+)?["']?(?!-)([^\s"',\]]+))""")
_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-)[A-Za-z0-9_-]{6,}")
# Shorter ones would be found everywhere.
_SHORTEST = 4


def redact(value: Any, command: str) -> Any:
    """Return a text, or plain data, without the secrets of a command."""
    if isinstance(value, dict):
        return {key: redact(entry, command) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(entry, command) for entry in value]
    if not isinstance(value, str):
        return value
    for secret in sorted(secrets_of(command), key=len, reverse=True):
        value = value.replace(secret, MASK)
    return redact_credentials(value)


def secrets_of(command: str) -> set[str]:
    """Return the values in a command that look like secrets."""
    found = {value for name, value in _VARIABLE.findall(command) if is_secret(name)}
    flags = {value for name, value in _FLAG.findall(command) if is_secret(name)}
    found |= {value for value in flags if not (value.isascii() and value.isdigit())}
    found |= set(_TOKEN.findall(command))
    return {value for value in found if len(value) >= _SHORTEST and not value.startswith(("$", "{{"))}
