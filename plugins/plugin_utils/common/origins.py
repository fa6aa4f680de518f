# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a value of the inventory stands: ansible-core keeps the file and the line of what it reads from YAML."""

import importlib
import os
import re
from typing import Any, Mapping

# What a sentence about a variable begins with: the variable, the keys within it, and what it says of a key in there.
_PLACE = re.compile(
    r"(?:no role has an option |no playbook reads )?(\w+(?:\.[\w-]+)*)(?:: (--)?(?:unknown key ')?([\w.-]+))?"
)
# Why a variable that stands nowhere is missed: another one, which asks for it.
_REASON = re.compile(r"\w+: found nothing, and (?=\w+)")
# Of ansible-core 2.19 and newer; before, the values of YAML have their position themselves.
_TAGS = "ansible._internal._datatag._tags"
# What stands there is written by the collection, and no place where a user can mend it.
_OWN = tuple(os.path.join(os.path.realpath(__file__ + "/../../../.."), name, "") for name in ("playbooks", "roles"))


def origin_of(text: str, variables: Mapping[str, Any]) -> str:
    """Return the file and the line of what a sentence is about, as ``FILE:LINE``; empty where nobody knows them."""
    missed = _REASON.match(text)
    if missed and text.partition(":")[0] not in variables:
        text = text[missed.end() :]
    found = _PLACE.match(text)
    keys, dashes, word = found.groups(default="") if found else ("", "", "")
    value, place = _follow(variables, keys, "")
    within = [value, *(value.get(key) for key in ("args", "env"))] if isinstance(value, Mapping) and word else []
    # Of an argument that is not there: where the others stand.
    place = _position(within[1]) or place if dashes and within else place
    return next(filter(None, (_follow(each, word, "")[1] for each in within)), place)


def _follow(value: Any, keys: str, place: str) -> tuple[Any, str]:
    """Return the value at keys such as ``chat.port``, and the place of the last one that has any.

    A number, a boolean or nothing may have no place of its own, but its key has. A name of an instance may have
    dots, and an argument may be spelt as --max_model_len.
    """
    while keys and isinstance(value, Mapping):
        fitting = [key for key in value if f"{_spelt(keys)}.".startswith(f"{_spelt(key)}.")]
        if not fitting:
            return None, place
        key = max(fitting, key=lambda each: (keys.startswith(str(each)), len(str(each))))
        keys, value = keys[len(_spelt(key)) + 1 :], value[key]
        place = _position(value) or _position(key) or place
    return value, place


def _spelt(key: Any) -> str:
    return str(key).lstrip("-").replace("_", "-")


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
    is_known = path and line and not os.path.realpath(path).startswith(_OWN)
    return f"{os.path.relpath(path)}:{line}" if path and is_known else ""
