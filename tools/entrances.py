#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of docs/explain/entrances.md from docs/explain/entrances.yml."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parents[1] / "docs/explain/entrances.yml"
PAGE = DATA.with_suffix(".md")
BEGIN, END = "<!-- begin of the table that tools/entrances.py writes -->\n", "<!-- end of that table -->\n"
HEADERS = {
    "sender": "Sender", "bytes": "Bytes", "depth": "Depth and numbers", "time": "Time", "odd": "An odd one gets",
}  # fmt: skip


def entries() -> list[dict[str, Any]]:
    """Return the rows of the data file."""
    found: list[dict[str, Any]] = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """Return the page with the table of the data file."""
    rows = [list(HEADERS.values()), ["---"] * len(HEADERS), *([str(row[key]) for key in HEADERS] for row in entries())]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    before, after = PAGE.read_text(encoding="utf-8").split(BEGIN)[0], END
    return f"{before}{BEGIN}{table}{after}"


def main() -> None:
    """Write the table into the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split(chr(10), maxsplit=1)[0]).parse_args()
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
