#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of what was measured, from catalog/evidence, into the pages that show them.

PYTHONPATH=.collections .venv/bin/python tools/evidence_table.py
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import sort_key
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.citation import WORTH
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.document import ESTIMATED, Evidence
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.estimates import (
    comparable,
    error_text,
    errors,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evidence.files import load_evidence

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- begin of the table that tools/evidence_table.py writes -->\n", "<!-- end of that table -->"
SHORT_HEAD = (
    "| Measured | model | vLLM, preset | output tokens/s (requests at a time) | start |\n|---|---|---|---|---|\n"
)
LONG_HEAD = (
    "| hardware | model | evidence | status | output tokens/s (requests at a time) | time to the first token | start |"
    "\n"
    "|---|---|---|---|---|---|---|\n"
)

ESTIMATES_HEAD = (
    "| hardware | model | estimated output tokens/s (requests at a time) | above what was measured or reported | by |\n"
    "|---|---|---|---|---|\n"
)
MACHINES_HEAD = (
    "| machine | date | accepted | measured, and its share of the expected figure | driver |\n|---|---|---|---|---|\n"
)


def machines_table() -> str:
    """Return a row for each result of accept.yml that was sent in."""
    rows = []
    for path in sorted((ROOT / "catalog/evidence/machines").glob("*/*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        accelerator = result["accelerator"]
        figures = ", ".join(_lowest_chip(result["figures"]))
        link = f"[{result['date'][:10]}](../../catalog/evidence/machines/{path.parent.name}/{path.name})"
        hardware = f"{accelerator['count']} x {_title(accelerator['model'])}"
        accepted = "yes" if result["accepted"] else "no"
        rows.append(f"| {hardware} | {link} | {accepted} | {figures} | {result['driver']['driver']['version']} |\n")
    return MACHINES_HEAD + "".join(rows)


def _lowest_chip(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each figure once: of several chips the slowest."""
    lowest: dict[str, Mapping[str, Any]] = {}
    for figure in sorted(figures, key=lambda figure: -figure["found"]):
        lowest[figure["figure"]] = figure
    return [f"{figure['found']:,g} {figure['unit']} ({figure['fraction']:.2f})" for figure in lowest.values()]


def short_table(evidence: Sequence[Evidence]) -> str:
    """Return a row for each preset of the newest release that was measured, and one for each older release.

    Each is the best by the rule of _worth, for each model and hardware.
    """
    best: dict[tuple[Any, ...], Evidence] = {}
    newest: dict[tuple[Any, ...], Any] = {}
    measured = [entry for entry in evidence if entry.results and entry.status != ESTIMATED]
    for entry in measured:
        served = entry.accelerator, entry.count, entry.model
        newest[served] = max(newest.get(served, sort_key("0")), sort_key(entry.release))
    for entry in sorted(measured, key=_worth):
        served, release = (entry.accelerator, entry.count, entry.model), sort_key(entry.release)
        best[(*served, release, _preset(entry) if release == newest[served] else "")] = entry
    rows = [
        (
            _hardware(entry),
            f"{entry.model}{_weights(entry)}",
            f"{_release(entry)}, {_preset(entry)}",
            _throughput(entry),
            _start(entry),
        )
        for _key, entry in sorted(best.items())
    ]
    return SHORT_HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def long_table(evidence: Sequence[Evidence]) -> str:
    """Return a row for each file of evidence from real hardware."""
    rows = [
        (
            _hardware(entry),
            f"{entry.model}{_weights(entry)}",
            f"[{entry.name.rpartition('/')[2]}](../../catalog/evidence/{entry.name}.yml){_mark(entry)}",
            entry.status,
            _throughput(entry),
            _first_token(entry),
            _start(entry),
        )
        for entry in _in_order(evidence)
        if entry.status != ESTIMATED
    ]
    return LONG_HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def estimates_table(evidence: Sequence[Evidence]) -> str:
    """Return a row for each estimate, with its error where the hardware was measured."""
    rows = [
        (
            f"[{_hardware(entry)}](../../catalog/evidence/{entry.name}.yml)",
            entry.model,
            _throughput(entry),
            error_text(errors(entry.results, comparable(evidence, entry.model, entry.accelerator, entry.count))),
            f"{entry.source}, vLLM {_release(entry)}",
        )
        for entry in _in_order(evidence)
        if entry.status == ESTIMATED
    ]
    return ESTIMATES_HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _in_order(evidence: Sequence[Evidence]) -> list[Evidence]:
    return sorted(evidence, key=lambda entry: (entry.accelerator, entry.count, entry.model, entry.name))


def _worth(entry: Evidence) -> tuple[Any, ...]:
    """Return what evidence is sorted by: the last is what a short table shows.

    Measured comes before reported, then the one with the most numbers of requests at a time, then the newest, then the
    one with the most loads.
    """
    loads = sum(result["repeats"] for result in entry.results)
    return WORTH[entry.status], len(entry.results), str(entry.date), loads, entry.name


def _release(entry: Evidence) -> str:
    return f"{entry.release}{_mark(entry)}"


def _mark(entry: Evidence) -> str:
    """Return the mark of evidence that has more than two releases of the catalogue after it."""
    names = [path.stem for path in (ROOT / "catalog/releases").glob("*.yml")]
    newer = [name for name in names if sort_key(name) > sort_key(entry.release)]
    return " (old)" if len(newer) > 2 else ""


def _preset(entry: Evidence) -> str:
    return str(entry.document.get("preset", "none"))


def _hardware(entry: Evidence) -> str:
    return f"{entry.count} x {_title(entry.accelerator)}"


def _title(accelerator: str) -> str:
    models = load_catalogue().models
    return models[accelerator].title if accelerator in models else accelerator


def _weights(entry: Evidence) -> str:
    return ", random weights" if entry.weights == "random" else ""


def _throughput(entry: Evidence) -> str:
    return _figures(entry, "output_tokens_per_second", "")


def _first_token(entry: Evidence) -> str:
    return _figures(entry, "ttft_ms", " ms")


def _figures(entry: Evidence, key: str, unit: str) -> str:
    return ", ".join(
        f"{_spread(result[key])}{unit} ({result['concurrency']})" for result in entry.results if key in result
    )


def _spread(figure: Mapping[str, float]) -> str:
    """Return a median with its spread: 8,950 [8,891-9,029]."""
    low, median, high = (f"{figure[key]:,.0f}" for key in ("lowest", "median", "highest"))
    return median if low == high else f"{median} [{low}-{high}]"


def _start(entry: Evidence) -> str:
    seconds = entry.document.get("start_seconds")
    return f"{seconds:g} s" if seconds else ""


def replaced(text: str, table: str) -> str:
    """Return a page with the table between its two marks. Raises ValueError where they are not there once."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"expected {BEGIN.strip()!r} and {END!r} once each")
    return pattern.sub(lambda _found: BEGIN + table + END, text)


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    evidence = load_evidence()
    tables = {
        "README.md": short_table(evidence),
        "docs/reference/hardware.md": long_table(evidence),
        "docs/reference/evidence.md": estimates_table(evidence),
        "docs/operate/accept.md": machines_table(),
    }
    return {ROOT / name: replaced((ROOT / name).read_text(encoding="utf-8"), text) for name, text in tables.items()}


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split(chr(10), maxsplit=1)[0]).parse_args()
    for page, content in pages().items():
        page.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
