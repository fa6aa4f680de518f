# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a value of the inventory stands: ansible-core keeps the file and the line of what it reads from YAML."""

import importlib
import os
import re
from typing import Any, Mapping

# What a sentence about a variable begins with: the variable, the keys within it, an argument of an instance.
_PLACE = re.compile(r"(?:no role has an option |no playbook reads )?(\w+)((?:\.[\w-]+)*)(?:: --([\w.-]+))?")
# Why a variable that stands nowhere is missed: another one, which asks for it.
_REASON = re.compile(r"\w+: found nothing, and (?=\w+)")
# Of ansible-core 2.19 and newer; before, the values of YAML have their position themselves.
_TAGS = "ansible._internal._datatag._tags"


def origin_of(text: str, variables: Mapping[str, Any]) -> str:
    """Return the file and the line of what a sentence is about, as ``FILE:LINE``; empty where nobody knows them."""
    missed = _REASON.match(text)
    if missed and text.partition(":")[0] not in variables:
        text = text[missed.end() :]
    found = _PLACE.match(text)
    name, keys, flag = found.groups() if found else ("", "", None)
    value = variables.get(name)
    # A number or a boolean has no position, but its key may have one.
    place = _position(value) or next((_position(key) for key in variables if key == name), "")
    for key in [*keys.split(".")[1:], *(["args", *flag.split(".")] if flag else [])]:
        value = value.get(key) if isinstance(value, Mapping) else None
        place = _position(value) or place
    return place


def with_origin(text: str, variables: Mapping[str, Any]) -> str:
    """Return a sentence about a variable with the file and the line of its value, where they are known."""
    place = origin_of(text, variables)
    return f"{text} ({place})" if place else text


def _position(value: Any) -> str:
    path, line, _column = getattr(value, "ansible_pos", None) or (None, None, None)
    try:
        origin = importlib.import_module(_TAGS).Origin.get_tag(value)
        path, line = (origin.path, origin.line_num) if origin else (path, line)
    except (ImportError, AttributeError):
        pass  # another release of ansible-core
    return f"{os.path.relpath(path)}:{line}" if path and line else ""
