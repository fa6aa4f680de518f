# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the keys and values of a mapping that a person has written, by a table of what each key may hold."""

import re
from typing import Any, Callable, Mapping, Sequence, Tuple

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest

# Whether a value is good, and in words what was expected.
Check = Tuple[Callable[[Any], bool], str]


def is_number(value: Any) -> bool:
    """Return whether a value of YAML is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def text_check(pattern: str, words: str) -> Check:
    """Return the check of a text that matches a pattern as a whole."""
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None, words


MAPPING: Check = (lambda value: isinstance(value, dict), "a mapping")
COUNT: Check = (lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0, "a number from 1")
ABOVE_ZERO: Check = (lambda value: is_number(value) and value > 0, "a number above 0")
ANY_TEXT = text_check(r"(?s).+", "a text")
NAME = r"[a-z][a-z0-9_]*"
A_NAME = text_check(NAME, "a name in lower case, like h200")


def problem_of(value: Any, known: Mapping[str, Check], where: str = "", required: Sequence[str] = ()) -> str:
    """Return the first thing that is wrong in a mapping, as a clause for a message about its file; empty for nothing.

    ``where`` is the place of the mapping in the file, empty for the file itself. A key that is not ``known`` is wrong,
    a value of another form, and a ``required`` key that is missing.
    """
    if not isinstance(value, dict):
        return f"{where or 'the file'}: found {show_value(value)}, expected a mapping"
    for key, entry in value.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in known:
            return f"unknown key '{place}'; {nearest(str(key), known)}"
        good, words = known[key]
        if not good(entry):
            return f"{place}: found {show_value(entry)}, expected {words}"
    for key in required:
        if key not in value:
            return f"{f'{where}.' if where else ''}{key}: is missing; expected {known[key][1]}"
    return ""
