# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the known name that a misspelt name was meant to be."""

from __future__ import annotations

import difflib
import unicodedata
from typing import Any, Iterable

from .kinds import show_value

# The time of a comparison grows with the square of a word, and no known name is as long.
_LONGEST = 200
# More names fill a terminal.
_LISTED = 50
_SLIP = 2


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``nearest: 'x'`` for a misspelt name, whatever its capitals, or what is known where nothing is near.

    Of many known names only the number is returned.
    """
    names = sorted(str(name) for name in known)
    spellings = {each.lower(): each for each in reversed(names)}
    word = str(name)[:_LONGEST].lower()
    begun = [each for each in spellings if each.startswith(word)]
    close = difflib.get_close_matches(word, begun, n=1) or difflib.get_close_matches(word, spellings, n=1)
    if close:
        return f"nearest: {spellings[close[0]]!r}{_foreign(str(name), spellings[close[0]])}"
    return f"known: {', '.join(names) or 'none'}" if len(names) <= _LISTED else f"none of {len(names)} names is near"


def _foreign(name: str, near: str) -> str:
    """Return the first character of a name that is not ASCII, which may look like one of the known name that is."""
    strange = next((each for each in name if not each.isascii()), "")
    if not strange or not near.isascii():
        return ""
    return f"; found {show_value(strange)} in it, U+{ord(strange):04X} {unicodedata.name(strange, 'of no name')}"


def not_a_number(value: Any, expected: str) -> str:
    """Return ``found ..., expected ...`` for a value that is not the number that ``expected`` describes.

    Digits in quotes look like a number to their author, so the message calls them a text.
    """
    if isinstance(value, str) and value.strip().isdecimal():
        return f"found the text {value!r}, expected {expected}, without quotes"
    return f"found {show_value(value)}, expected {expected}"


def slip(name: str, known: Iterable[str]) -> str | None:
    """Return the known name from which ``name`` differs by two letters at most, None where it may be another name."""
    near = misspelt(name, known)
    if near is None or abs(len(near) - len(name)) > _SLIP:
        return None
    changes = difflib.SequenceMatcher(None, name, near, autojunk=False).get_opcodes()
    return near if sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in changes if kind != "equal") <= _SLIP else None


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``name`` was probably meant to be, None where it is another word."""
    close = difflib.get_close_matches(name[:_LONGEST], sorted(known), n=1, cutoff=0.85)
    return close[0] if close else None
