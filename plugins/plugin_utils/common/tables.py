# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of text for a terminal: columns share the width; longer text is wrapped, never cut."""

import re
import textwrap
from typing import Any, Iterable, Sequence

GAP = "  "
# Narrower columns would break words into syllables.
NARROWEST = 10
# Words up to this width, such as addresses and names of models, are not broken: they are copied from the table.
UNBROKEN = 48


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, indent: str = "", whole: int = 0) -> str:
    """Return rows under headers, ``width`` characters wide; a column that is empty in every row is left out.

    It is wider only where words of up to UNBROKEN characters need it.

    The first column, that of names, is wrapped only where it needs more than ``whole`` characters.
    """
    used = [index for index in range(len(headers)) if any(row[index] for row in rows)]
    lines = [[headers[index] for index in used], *[[row[index] for index in used] for row in rows]]
    if not used or not rows:
        return ""
    widths = _widths(lines, width - len(indent), whole)
    text = [_laid(line, widths, indent) for line in lines]
    return "\n".join([text[0], indent + GAP.join("-" * size for size in widths), *text[1:]])


def hosts_in_words(hosts: Sequence[str], most: int = 12) -> str:
    """Return the names of hosts in the given order, such as that of a rollout; of a long list only the first ones."""
    if len(hosts) <= most:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:most])} and {len(hosts) - most} more"


def by_name(hosts: Iterable[str]) -> list[str]:
    """Return the names of hosts sorted, gpu-2 before gpu-10."""
    return sorted(hosts, key=_by_number)


def _by_number(name: str) -> list[Any]:
    """Return a sort key in which the digits of a name count as numbers."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def wrapped(text: Any, width: int, indent: str = "", further: str = "") -> str:
    """Return a text over several lines; ``further`` is put before each but the first, after the indent."""
    lines = _lines(str(text), max(width - len(indent) - len(further), NARROWEST))
    return "\n".join([indent + lines[0], *[indent + further + line for line in lines[1:]]])


def _widths(lines: Sequence[Sequence[str]], width: int, whole: int) -> list[int]:
    """Return the width of each column: its full width, or a fair share of the space that narrower ones leave."""
    wanted = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    left = width - len(GAP) * (len(wanted) - 1)
    widths = dict.fromkeys(range(len(wanted)), 0)
    waiting = sorted(widths, key=lambda index: wanted[index])
    if wanted[0] <= whole:
        widths[0] = wanted[0]
        left -= wanted[0]
        waiting.remove(0)
    least = {
        index: min(wanted[index], max(NARROWEST, _longest_word(line[index] for line in lines))) for index in waiting
    }
    while waiting:
        share = min(left // len(waiting), left - sum(least[index] for index in waiting[1:]))
        index = waiting.pop(0)
        widths[index] = max(min(wanted[index], share), least[index])
        left -= widths[index]
    return [widths[index] for index in sorted(widths)]


def _longest_word(texts: Iterable[str]) -> int:
    return max((len(word) for text in texts for word in text.split() if len(word) <= UNBROKEN), default=0)


def _laid(line: Sequence[str], widths: Sequence[int], indent: str) -> str:
    cells = [_lines(cell, size) for cell, size in zip(line, widths)]
    height = max(len(cell) for cell in cells)
    return "\n".join(
        (
            indent
            + GAP.join((cell[number] if number < len(cell) else "").ljust(size) for cell, size in zip(cells, widths))
        ).rstrip()
        for number in range(height)
    )


def _lines(text: str, width: int) -> list[str]:
    """Return a text in lines; a word that is too long is broken after a punctuation mark, if it has one."""
    lines = []
    for line in text.splitlines() or [""]:
        words = [part for word in line.split(" ") for part in _broken(word, width)]
        lines += textwrap.wrap(" ".join(words), width, break_on_hyphens=False) or [""]
    return lines


def _broken(word: str, width: int) -> list[str]:
    parts = []
    while len(word) > width:
        end = max(word.rfind(sign, width // 2, width) for sign in "./_=,-") + 1 or width
        parts.append(word[:end])
        word = word[end:]
    return [*parts, word]
