# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet on one screen of a terminal, whether it has ten hosts or ten thousand."""

from collections import Counter
from typing import Callable, NamedTuple, Sequence

from ...module_utils.accelerator.recognition import CPU
from ..common.tables import table
from .chips import ATTENTION, STALE, STATES
from .lines import Line, totals

WIDTH = 120
# The lines of the summary, its head included, and the number of hosts that are named below it.
SUMMARY_LINES = 26
NAMED = 20
NONE, NO_KIND = "-", "not known"
WHERE = ("site", "cluster", "accelerator")
UNITS = (("d", 86400), ("h", 3600), ("min", 60))


class Cut(NamedTuple):
    """One way to sum a fleet up: its name, its columns, and the values of a line in them."""

    name: str
    headers: tuple[str, ...]
    of: Callable[[Line], tuple[str, ...]]
    accelerators: bool


class Row(NamedTuple):
    """A row of the table before its layout."""

    where: tuple[str, ...]
    numbers: list[str]
    accelerators: list[str]
    hosts: int


# From the finest to the coarsest; the first whose table is short enough is used.
CUTS = (
    Cut("cluster and accelerator", WHERE, lambda line: (line.site, line.cluster or NONE, line.kind or NO_KIND), False),
    Cut("cluster", WHERE[:2], lambda line: (line.site, line.cluster or NONE), True),
    Cut("site and accelerator", ("site", WHERE[2]), lambda line: (line.site or NONE, line.kind or NO_KIND), False),
    Cut("site", ("site",), lambda line: (line.site or NONE,), True),
    Cut("accelerator", WHERE[2:], lambda line: (line.kind or NO_KIND,), False),
)


def fleet_table(lines: Sequence[Line], now: float, width: int = WIDTH) -> list[str]:
    """Return the lines of the whole table, at most 60; ``now`` is in seconds since 1970."""
    kinds = Counter(line.kind or NO_KIND for line in lines)
    found = [_cut(f"hosts by accelerator: {_kinds_in_words(kinds, 6)}", width), ""] if lines else []
    text = [_head(lines), *found, *summary(lines, width), *needs_attention(lines, now, width)]
    return [_printable(line) for line in text]


def summary(lines: Sequence[Line], width: int = WIDTH) -> list[str]:
    """Return the table of hosts, chips and states, by cluster and accelerator, or coarser where that is too long."""
    if not lines:
        return []
    for cut in CUTS:
        found = _rows(lines, cut)
        # A cut with more rows than the limit needs no layout.
        laid = _laid(cut, found, width) if len(found) <= SUMMARY_LINES else []
        if 0 < len(laid) <= SUMMARY_LINES:
            break
    else:
        most = sorted(found, key=lambda row: -row.hosts)[: SUMMARY_LINES // 2]
        laid = [*_laid(cut, most, width)[: SUMMARY_LINES - 1], f"and {len(found) - len(most):,} more kinds of host"]
    note = [] if cut is CUTS[0] else [f"(by {cut.name}: by {CUTS[0].name} it would be too long; the page shows all)"]
    return [*laid, *note]


def needs_attention(lines: Sequence[Line], now: float, width: int = WIDTH) -> list[str]:
    """Return the hosts of each action, a line each; the actions share NAMED lines."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in sorted(lines, key=lambda line: STATES.index(line.state)):
        if line.state in ATTENTION:
            groups.setdefault((line.state, line.todo), []).append(line)
    shares = _shares([len(members) for members in groups.values()], NAMED)
    text = [""] if groups else []
    for ((state, todo), members), share in zip(groups.items(), shares):
        first = f" (the first {share})" if share < len(members) else ""
        text.append(f"{state}, {_number_of(len(members), 'host')}{first}: {todo}")
        named = [(_printable(line.host), _printable(_why(line, now))) for line in members[:share]]
        size = max(len(host) for host, _why_text in named)
        # The name stays complete; the page has the rest of a long reason.
        text += [f"  {host.ljust(size)}  {_cut(why, max(width - size - 4, 30))}" for host, why in named]
    return text


def age(seconds: float) -> str:
    """Return a time span with one unit: 3 min, 5 h, 12 d; a time in the future counts as less than a minute."""
    for unit, size in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "less than a minute"


def _head(lines: Sequence[Line]) -> str:
    numbers = totals(lines)
    counted = [(numbers[f"{what}s"], what) for what in ("host", "chip", "cluster", "site")]
    parts = [_number_of(count, what) for count, what in counted if count]
    states = [f"{count:,} {state}" for state, count in numbers["states"].items() if count]
    return f"{', '.join(parts)}: {', '.join(states)}" if lines else "no hosts"


def _rows(lines: Sequence[Line], cut: Cut) -> list[Row]:
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(cut.of(line), []).append(line)
    rows = [_row(where, members, cut) for where, members in groups.items()]
    if cut.headers[-1] != WHERE[2] or WHERE[1] in cut.headers:
        return rows
    # The order within the first cluster is not the overall order: the most common accelerator of a place comes first.
    places = list(dict.fromkeys(row.where[:-1] for row in rows))
    return sorted(rows, key=lambda row: (places.index(row.where[:-1]), -row.hosts, row.where))


def _row(where: tuple[str, ...], members: Sequence[Line], cut: Cut) -> Row:
    chips = sum(line.count for line in members)
    only_cpu = all(model == CPU for line in members for model, _count in line.chips)
    states = Counter(line.state for line in members)
    kinds = Counter(line.kind or NO_KIND for line in members)
    accelerators = [_kinds_in_words(kinds, 3)] if cut.accelerators else []
    numbers = [f"{len(members):,}", "" if only_cpu else f"{chips:,}"]
    numbers += [f"{states[state]:,}" if states[state] else "" for state in STATES]
    return Row(where, numbers, accelerators, len(members))


def _kinds_in_words(kinds: Counter[str], most: int) -> str:
    first = kinds.most_common(most)
    rest = sum(kinds.values()) - sum(count for _kind, count in first)
    return ", ".join([*(f"{kind} {count:,}" for kind, count in first), *([f"{rest:,} others"] if rest else [])])


def _laid(cut: Cut, rows: Sequence[Row], width: int) -> list[str]:
    """Return the table; numbers are right-aligned below their titles."""
    names = ("hosts", "chips", *STATES)
    sizes = [max(len(name), *(len(row.numbers[index]) for row in rows)) for index, name in enumerate(names)]
    empty = [not any(row.numbers[index] for row in rows) for index in range(len(names))]
    headers = (*cut.headers, *(name.rjust(size) for name, size in zip(names, sizes)))
    cells = [
        (
            *map(_printable, row.where),
            *("" if none else number.rjust(size) for number, size, none in zip(row.numbers, sizes, empty)),
            *map(_printable, row.accelerators),
        )
        for row in rows
    ]
    return table((*headers, *(["hosts by accelerator"] if cut.accelerators else [])), cells, width).splitlines()


def _shares(sizes: Sequence[int], most: int) -> list[int]:
    """Return how many of each size to take, ``most`` in all: a fair share, and what others leave unused."""
    shares = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
        waiting = sum(not share for share in shares)
        shares[index] = min(sizes[index], (most - sum(shares)) // waiting)
    return shares


def _why(line: Line, now: float) -> str:
    if line.state != STALE:
        return line.why
    last = "never answered" if line.seen_at is None else f"last answer {age(now - line.seen_at)} ago"
    return f"{last}: {line.why}"


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def _number_of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _printable(text: str) -> str:
    """Return a text without characters that control a terminal."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
