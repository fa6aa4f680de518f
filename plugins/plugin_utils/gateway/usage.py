# SPDX-License-Identifier: GPL-3.0-or-later
"""The tokens that clients of gateways used: the rows of all gateways together, as a table, CSV or JSON."""

import csv
import datetime
import io
import json
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ..common.answers import describe_silent
from ..common.tables import table

WIDTH = 120
FORMATS = ("table", "csv", "json")
KEY = ("hour", "gateway", "client", "team", "model")
NUMBERS = ("requests", "aborted", "uncounted", "prompt", "cached", "completion")
HEADERS = ("team", "client", "model", "requests", "aborted", "uncounted", "prompt", "cached", "completion")
Rows = Sequence[Mapping[str, Any]]


def merge_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of several gateways as those of one.

    Each gateway stores what all of them served, so two have the same row unless one of them has read less so far.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in KEY)
        known = found.setdefault(key, dict(row))
        known.update({name: max(known[name], row[name]) for name in NUMBERS})
    return [found[key] for key in sorted(found)]


def merge_gaps(gaps: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many records of each server are missing: the most that one gateway lacks."""
    by_gateway: dict[str, dict[str, int]] = {}
    for gap in gaps:
        sums = by_gateway.setdefault(gap["server"], {})
        sums[gap["by"]] = sums.get(gap["by"], 0) + gap["missing"]
    return {server: max(sums.values()) for server, sums in sorted(by_gateway.items())}


def usage_text(results: Mapping[str, Mapping[str, Any]], form: str = "table", width: int = WIDTH) -> str:
    """Return the results of gateway_usage_info by gateway in one of FORMATS."""
    rows = merge_rows(row for result in results.values() for row in result.get("rows", ()))
    gaps = merge_gaps({**gap, "by": name} for name, result in results.items() for gap in result.get("gaps", ()))
    if form == "csv":
        return _csv(rows)
    if form == "json":
        return json.dumps({"rows": [_readable(row) for row in rows], "missing": gaps}, indent=2) + "\n"
    if form != "table":
        raise ValueError(f"format: found {show_value(form)}, expected one of {', '.join(FORMATS)}")
    missing = [
        f"{count} records of {server} are missing: their requests are in no figure here"
        for server, count in gaps.items()
    ] + describe_silent(results, "rows")
    if not rows:
        return "\n".join(["No gateway has counted tokens in this time.", *missing])
    return "\n".join([table(HEADERS, _sums(rows), width), *(["", *missing] if missing else [])])


def _sums(rows: Rows) -> list[list[str]]:
    """Return the rows of the table: one for each client and model, and the sum of each team with several of them."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        found = sums.setdefault((row["team"], row["client"], row["model"]), [0] * len(NUMBERS))
        for number, name in enumerate(NUMBERS):
            found[number] += row[name]
    lines: list[list[str]] = []
    for team in sorted({key[0] for key in sums}):
        own = {key: found for key, found in sorted(sums.items()) if key[0] == team}
        lines += [_line(key, found) for key, found in own.items()]
        if len(own) > 1:
            lines.append(_line((team, "all", "all"), [sum(column) for column in zip(*own.values(), strict=True)]))
    return lines


def _line(key: tuple[str, str, str], numbers: Sequence[int]) -> list[str]:
    return [*(part or "-" for part in key), *(f"{number:,}" for number in numbers)]


def _csv(rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*KEY, *NUMBERS], lineterminator="\n")
    writer.writeheader()
    # A name that begins as a formula does stays a text in a spreadsheet.
    writer.writerows({name: _plain(value) for name, value in _readable(row).items()} for row in rows)
    return text.getvalue()


def _plain(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    hour = datetime.datetime.fromtimestamp(row["hour"], datetime.timezone.utc).strftime("%Y-%m-%dT%H:00Z")
    return {**{name: row[name] for name in (*KEY, *NUMBERS)}, "hour": hour}
