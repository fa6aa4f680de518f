# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge settings into docker's daemon.json, and describe the file without what may be secret in it.

The file may hold credentials: of a proxy, of a log server, in arguments of a runtime. They never leave the host.
"""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, Mapping, Sequence

from ..common.credentials import MASK, redact_credentials
from ..common.kinds import name_kind
from .facts import RuntimePlanError
from .names import DAEMON_JSON

# The keys that the role sets; of any other key nothing is ever shown.
KEYS = ("data-root", "registry-mirrors", "insecure-registries", "exec-opts", "runtimes", "features")

# A name or an address with a user before its last @; not a path.
_USER = re.compile(r"\A(?P<scheme>[\w+.-]+://)?(?!/).*@", re.DOTALL)
# Shorter values are replaced as whole words only.
_UNMISTAKABLE = 6


def read_settings(text: str, where: str = DAEMON_JSON) -> dict[str, Any]:
    """Return the keys of daemon.json, none for an empty file. Raises RuntimePlanError where docker cannot read it."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise RuntimePlanError(
            f"{where} is not valid JSON: {exc}; repair or remove it, docker cannot start with it"
        ) from exc
    if not isinstance(found, dict):
        raise RuntimePlanError(f"{where}: found {name_kind(found)}, expected a mapping of settings")
    return found


def merge_settings(found: Mapping[str, Any], settings: Mapping[str, Any], where: str = DAEMON_JSON) -> dict[str, Any]:
    """Return the keys of daemon.json with the settings, and everything else unchanged.

    ``features`` and ``runtimes`` are merged by their keys, ``exec-opts`` by the part before ``=``. Raises
    RuntimePlanError for a value of another kind than docker's; the message does not show the value.
    """
    merged = dict(found)
    for key, value in settings.items():
        there = found.get(key)
        if there is not None and name_kind(there) != name_kind(value):
            raise RuntimePlanError(f"{where}: {key}: found {name_kind(there)}, expected {name_kind(value)}")
        if key in ("features", "runtimes"):
            merged[key] = {**(there or {}), **value}
        elif key == "exec-opts":
            merged[key] = _merge_options(there or [], value, f"{where}: {key}")
        else:
            merged[key] = value
    return merged


def _merge_options(there: Sequence[Any], wanted: Sequence[str], where: str) -> list[str]:
    odd = [option for option in there if not isinstance(option, str)]
    if odd:
        raise RuntimePlanError(f"{where}: found {name_kind(odd[0])} in the list, expected texts")
    names = {option.partition("=")[0] for option in wanted}
    return [*(option for option in there if option.partition("=")[0] not in names), *wanted]


def merge_text(before: str, settings: Mapping[str, Any], where: str = DAEMON_JSON) -> str:
    """Return the text of daemon.json with the settings, the same text where nothing changes.

    Raises RuntimePlanError for a file that cannot be read or merged.
    """
    found = read_settings(before, where)
    merged = merge_settings(found, settings, where)
    return before if merged == found and before else json.dumps(merged, indent=2) + "\n"


def redact_settings(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that the role sets without credentials. A value without any is unchanged, so plans compare it."""
    shown = {key: _redact(found[key]) for key in KEYS if key in found}
    if isinstance(shown.get("runtimes"), dict):
        shown["runtimes"] = {name: _redact_runtime(entry) for name, entry in shown["runtimes"].items()}
    return shown


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        return redact_credentials(_USER.sub(rf"\g<scheme>{MASK}@", value))
    if isinstance(value, list):
        return [_redact(each) for each in value]
    return {name: _redact(each) for name, each in value.items()} if isinstance(value, dict) else value


def _redact_runtime(entry: Any) -> Any:
    """Return a runtime with its program; arguments and options are the site's own."""
    if not isinstance(entry, dict):
        return MASK
    return {key: value if key == "path" or not value else MASK for key, value in entry.items()}


def describe_settings(text: str, keys: Sequence[str], where: str = DAEMON_JSON) -> str:
    """Return these keys of a daemon.json as JSON without credentials, for a diff; empty for an empty file."""
    found = read_settings(text, where)
    shown = redact_settings({key: found[key] for key in keys if key in found})
    return json.dumps(shown, indent=2) + "\n" if found else ""


def redact_output(output: str, text: str, settings: Mapping[str, Any]) -> str:
    """Return what a program printed about a daemon.json without the file's values, except for those of the role."""
    public = set(_texts(settings))
    pieces = {piece for value in _texts(read_settings(text)) if value not in public for piece in _pieces(value)}
    for piece in sorted(pieces, key=len, reverse=True):
        pattern = re.escape(piece)
        output = re.sub(pattern if len(piece) >= _UNMISTAKABLE else rf"(?<!\w){pattern}(?!\w)", MASK, output)
    return redact_credentials(output)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a document, without the names of its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _pieces(value: str) -> Iterator[str]:
    """Yield the forms in which a program may print a value: itself, in quotes, and parts of an address's user."""
    user = value.rpartition("@")[0].rpartition("://")[2]
    yield from filter(None, (value, json.dumps(value, ensure_ascii=False)[1:-1], *re.split(r"[/:?#@]", user)))
