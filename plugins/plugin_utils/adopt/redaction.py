# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the secrets of a command out of every text that is printed, errors included."""

import re
from typing import Any, Iterator, Sequence

from ...module_utils.common.credentials import MASK, redact_credentials
from ...module_utils.common.kinds import show_value
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
    r"""(?<![\w-])--?(?:\w[\w-]{0,60}\.){0,8}(\w[\w-]{0,60})(?=["']?(?:=|,?\s+)(?:-\s+)?["']?(?!-)"""
    rf"""([^\s"',\]]{{1,{_LONGEST}}}))"""
)
# A variable with a blank or a colon in place of its =. Its value is no container's name in small letters.
_APART = re.compile(
    r"""(?<![\w-])(?:-e|--env|ENV)[\s="']+([A-Za-z_]\w{0,99})["']?(?:\s+|[ \t]*:[ \t]*)["']?(?!-)(?=[^\s"']*[A-Z0-9])"""
    rf"""([^\s"']{{1,{_LONGEST}}})"""
)
# Each with what its values end before.
_ENDS = (
    (_VARIABLE, re.compile(r"""[\s"']|\Z""")),
    (_FLAG, re.compile(r"""[\s"',\]]|\Z""")),
    (_APART, re.compile(r"""[\s"']|\Z""")),
)
_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-)[A-Za-z0-9_-]{6,}")
# Flags, numbers, variables, paths and repositories of the hub; long words without a hyphen may be keys in base64.
_HARMLESS = re.compile(
    r"(?i:true|false|none|null|auto|yes|no|on|off)|\W{1,9}|\d{1,6}|--?[A-Za-z][\w.-]*|\$\{?\w+\}?|(?:~|\.{0,2})(?:/[\w.-]{1,40}){1,9}"
    r"|(?=[^.-]{1,24}\Z|[^.-]*[.-])[\w.-]{1,40}/[\w.-]{1,96}"
)
_IMAGE = re.compile(
    r"(?:docker://)?[a-z0-9][a-z0-9._-]*(?::[0-9]+(?=/))?(?:/[a-z0-9][a-z0-9._-]*)*(?::[\w.-]{0,128})?(?:@sha256:[0-9a-f]+)?"
)
_ANY_KEY = re.compile(r"\w*[A-Z0-9](?<!_P)KEY[0-9]*")
# Shorter ones would be found everywhere.
_SHORTEST = 4


def show_word(word: str) -> str:
    """Return a word that nobody expects as an error shows it: what may be a secret is not shown."""
    return show_value(word) if _HARMLESS.fullmatch(word) else "a word that may be a secret"


def may_be_secret(name: str, value: Any = None) -> bool:
    """Return whether a name tells a secret, also one such as MYKEY; UCX_IB_PKEY is that of a partition."""
    return is_secret(name, value) or (bool(_ANY_KEY.fullmatch(name)) and is_secret("KEY", value))


def is_image(word: str) -> bool:
    """Return whether a container engine accepts a word as the name of an image, which is no secret."""
    return bool(_IMAGE.fullmatch(word)) and (bool(re.search("[:/]", word)) or not re.search("[0-9]", word))


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
        if not may_be_secret(name, value) or (pattern is _APART and is_image(value)):
            continue
        if len(value) == _LONGEST and found.start(2) >= end:
            end = ends.search(command, found.start(2)).start()  # type: ignore[union-attr]
            value = command[found.start(2) : end]
        yield value
