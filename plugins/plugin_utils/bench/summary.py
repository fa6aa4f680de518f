# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarise measurements: medians with their spread, in the format of evidence.

A record is one measurement: ``workload`` (its definition), ``concurrency``, ``repeat``, ``measurement``, ``result``
(the JSON of vllm bench serve) and ``power`` (``joules`` and ``watts``, empty where unknown).
"""

import statistics
from typing import Any, Iterable, Mapping, Sequence

from ..evidence.document import digest_of

Record = Mapping[str, Any]
# The key of each figure in the result, and its number of decimals.
FIGURES = {
    "output_tokens_per_second": ("output_throughput", 1),
    "ttft_ms": ("median_ttft_ms", 2),
    "tpot_ms": ("median_tpot_ms", 2),
    "itl_p99_ms": ("p99_itl_ms", 2),
}
JOULES = "joules_per_token"


def results_of(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the entries of ``results``: one for each workload and concurrency, in the order of the records."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["workload"]["name"], record["concurrency"]), []).append(record)
    return [result_entry(group) for group in groups.values()]


def result_entry(records: Sequence[Record]) -> dict[str, Any]:
    """Return the entry of ``results`` for the repeats of one workload at one concurrency."""
    first = records[0]
    entry: dict[str, Any] = {
        "workload": first["workload"]["name"],
        "input_tokens": first["workload"]["input_tokens"],
        "output_tokens": first["workload"]["output_tokens"],
        "concurrency": first["concurrency"],
        "repeats": len(records),
    }
    for name, (key, digits) in FIGURES.items():
        entry[name] = spread([float(record["result"][key]) for record in records], digits)
    joules = [joules_per_token(record) for record in records]
    # A median of only some repeats would look like one of all.
    known = [value for value in joules if value is not None]
    if len(known) == len(joules):
        entry[JOULES] = spread(known, 4)
    return entry


def joules_per_token(record: Record) -> float | None:
    """Return the joules for each output token, None where the power is not known."""
    joules = (record.get("power") or {}).get("joules")
    return None if joules is None else float(joules) / float(record["result"]["total_output_tokens"])


def spread(values: Sequence[float], digits: int) -> dict[str, float]:
    """Return median, lowest and highest of values, rounded."""
    found = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
    return {name: round(value, digits) for name, value in found.items()}


def figures_line(record: Record) -> str:
    """Return the figures of one measurement as a line for people."""
    result, joules = record["result"], joules_per_token(record)
    parts = [
        f"{result['output_throughput']:,.1f} tok/s",
        f"TTFT {result['median_ttft_ms']:,.1f} ms",
        f"ITL p99 {result['p99_itl_ms']:,.1f} ms",
        *([f"{joules:.3f} J/token"] if joules is not None else []),
    ]
    return ", ".join(parts)


def slowed_notes(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each measurement during which a chip was slowed down by heat or a power brake."""
    return [
        f"{record['workload']['name']}, {record['concurrency']} at a time, run {record['repeat']}: slowed down: "
        f"{', '.join(record['slowed'])}; the figures are too low: look at fans, airflow, temperature of the room and "
        "power supplies, then measure again"
        for record in records
        if record.get("slowed")
    ]


def raw_digest(records: Sequence[Record]) -> str:
    """Return the sha256 of the raw results: the list of what vllm bench serve wrote, in order, as JSON."""
    return digest_of([record["result"] for record in records])
