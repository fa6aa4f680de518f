# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of an acceptance: one JSON document, its file names, and its lines for the terminal."""

import time
from typing import Any, Mapping, Sequence

from .judge import FIGURES, PEER_FIGURE, PHASE_FIGURES, Judgement, chip_name, expected_of, expected_of_pair, judge

FORMAT = 1
# Of the parts of an acceptance, in the order of the document.
PARTS = ("driver", "burn_in", "storage", "network", "chats", "benches")
_OF_TASKS = ("changed", "failed", "skipped", "invocation")
_HARDWARE = ("model", "stack", "generation", "count", "models", "driver_version", "devices", "cpu")
_DRIVER = ("driver", "findings", "later", "active")
_BENCH = ("item", "figures", "problem", "not_tried")
_CHAT = ("item", "ok", "msg", "model", "answer", "time_to_first_token_s", "tokens_per_second")


def result_of(host: str, tool: str, now: float, parts: Mapping[str, Any]) -> tuple[dict[str, Any], Judgement]:
    """Return the document of one host and its judgement.

    ``now`` are seconds since the epoch, ``parts`` is the document that judge() reads.
    """
    judgement = judge(parts)
    accelerator = parts.get("accelerator") or {}
    driver = parts.get("driver") or {}
    document = {
        "format": FORMAT,
        "tool": tool,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "host": host,
        "accepted": judgement.accepted,
        "findings": [finding.as_dict() for finding in judgement.findings],
        "notes": list(judgement.notes),
        "not_tried": list(judgement.not_tried),
        "minutes": parts.get("minutes"),
        "accelerator": {key: accelerator[key] for key in _HARDWARE if key in accelerator},
        "expected": parts.get("expected") or {},
        "figures": figures_of(parts),
        **{name: _part(parts.get(name) or {}) for name in PARTS},
    }
    document["driver"] = {key: driver[key] for key in _DRIVER if key in driver}
    document["chats"] = [{key: chat[key] for key in _CHAT if key in chat} for chat in parts.get("chats") or ()]
    document["benches"] = [{key: one[key] for key in _BENCH if key in one} for one in parts.get("benches") or ()]
    return document, judgement


def _part(part: Any) -> Any:
    """Return a part without what Ansible adds to the result of a task."""
    return {key: value for key, value in part.items() if key not in _OF_TASKS} if isinstance(part, dict) else part


def figures_of(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each chip's figures beside the expected ones: chip, figure, unit, found, expected, fraction.

    Those of a pair have both names as ``chip``: A to B.
    """
    measured = (parts.get("burn_in") or {}).get("measured") or {}
    rows = []
    for phase, figure in PHASE_FIGURES.items():
        for row in measured.get(phase) or ():
            chip = chip_name(row["chip"], parts)
            rows.append(_figure(chip, figure, row, expected_of(chip, parts).get(figure)))
    for row in measured.get("peer") or ():
        one, other = (chip_name(row[end], parts) for end in ("from", "to"))
        rows.append(_figure(f"{one} to {other}", PEER_FIGURE, row, expected_of_pair(row, parts)))
    return rows


def _figure(chip: str, figure: str, row: Mapping[str, Any], expected: Mapping[str, Any] | None) -> dict[str, Any]:
    beside = (
        {"expected": expected["value"], "fraction": round(row["median"] / expected["value"], 3)} if expected else {}
    )
    return {
        "chip": chip,
        "figure": figure,
        "unit": FIGURES[figure][1],
        "found": row["median"],
        "lowest": row["lowest"],
        "highest": row["highest"],
        **beside,
    }


def file_stem(host: str, date: str) -> str:
    """Return the name of a result's files without their ending: gpu-a-01-20261123T224500Z."""
    safe = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in host)
    return f"{safe}-{date.replace('-', '').replace(':', '')}"


def summary_lines(document: Mapping[str, Any], files: Sequence[str]) -> list[str]:
    """Return the result for the terminal: verdict, figures, findings, notes, what was not tried, files."""
    verdict = "accepted" if document["accepted"] else "NOT accepted"
    lines = [f"{document['host']}: {verdict}"]
    for row in document["figures"]:
        beside = f", {row['fraction']:.2f} of {row['expected']:g}" if "expected" in row else ""
        lines.append(f"  chip {row['chip']}: {FIGURES[row['figure']][0]} {row['found']:g} {row['unit']}{beside}")
    for part, figure, unit in (("storage", "gb_per_s", "GB/s"), ("network", "gbit_per_s", "Gbit/s")):
        if figure in document[part]:
            lines.append(f"  {part}: {document[part][figure]:g} {unit}")
    measured = [one for one in document["benches"] if "figures" in one]
    lines += [f"  bench of {one['item']}: {bench_line(one['figures'])}" for one in measured]
    lines += [f"  finding: {row['where']}: {row['what']}; {row['action']}" for row in document["findings"]]
    lines += [f"  note: {note}" for note in document["notes"]]
    lines += [f"  not tried: {row['what']} ({row['why']})" for row in document["not_tried"]]
    return [*lines, *(f"  {path}" for path in files)]


def bench_line(figures: Mapping[str, Any]) -> str:
    """Return the figures of a short benchmark as a line."""
    return (
        f"{figures['output_tokens_per_second']:,.1f} output tokens/s, TTFT {figures['ttft_ms']:,.1f} ms, ITL p99 "
        f"{figures['itl_p99_ms']:,.1f} ms with {figures['concurrency']} requests at a time"
    )
