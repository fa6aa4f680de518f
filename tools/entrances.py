#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of docs/explain/entrances.md from entrances.yml and listeners.yml beside it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parents[1] / "docs/explain/entrances.yml"
LISTENERS = DATA.with_name("listeners.yml")
PAGE = DATA.with_suffix(".md")
BEGIN, END = "<!-- begin of the table that tools/entrances.py writes -->\n", "<!-- end of that table -->\n"
HEADERS = {
    "sender": "Sender", "bytes": "Bytes", "depth": "Depth and numbers", "time": "Time", "odd": "An odd one gets",
}  # fmt: skip
LISTENER_HEADERS = {
    "server": "Server", "reach": "Who reaches it", "connections": "Connections", "head": "A head", "body": "A body",
}  # fmt: skip


def entries(data: Path = DATA) -> list[dict[str, Any]]:
    """Return the rows of a data file."""
    found: list[dict[str, Any]] = yaml.safe_load(data.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """Return the page with the tables of both data files."""
    text = PAGE.read_text(encoding="utf-8").split(BEGIN)
    for number, (data, headers) in enumerate(((DATA, HEADERS), (LISTENERS, LISTENER_HEADERS)), 1):
        rows = [list(headers.values()), ["---"] * len(headers)]
        rows += [[str(row[key]) for key in headers] for row in entries(data)]
        text[number] = "".join(f"| {' | '.join(row)} |\n" for row in rows) + END + text[number].partition(END)[2]
    return BEGIN.join(text)


def main() -> None:
    """Write the tables into the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split(chr(10), maxsplit=1)[0]).parse_args()
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
