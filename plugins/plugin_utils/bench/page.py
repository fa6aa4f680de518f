# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a benchmark, alone or beside another one: it loads nothing and runs no script."""

import html
from pathlib import Path
from typing import Any, Mapping, Sequence

from ..pages.file import read_parts
from ..pages.texts import fill_page
from .plots import Series, line_chart
from .summary import JOULES

PARTS = Path(__file__).resolve().parent / "bench_page"
# Figure, its title, its unit, and whether more is better.
CHARTS = (
    ("output_tokens_per_second", "Output", "tok/s", True),
    ("ttft_ms", "Time to first token, median", "ms", False),
    ("tpot_ms", "Time per output token, median", "ms", False),
    ("itl_p99_ms", "Inter-token latency, p99", "ms", False),
    (JOULES, "Energy", "J/token", False),
)
FACTS = {
    "model": "model", "weights": "weights", "release": "vLLM release", "accelerator": "accelerator", "count": "chips",
    "preset": "preset", "plan": "plan", "driver": "driver", "power_limit_watts": "power limit (W)",
    "start_seconds": "last start (s)", "date": "date", "source": "measured by",
}  # fmt: skip

Summary = Mapping[str, Any]


def bench_page(summary: Summary, other: Summary | None = None) -> str:
    """Return the page of a summary; with another summary its figures are beside it. Both as summary.json has them."""
    title = f"Benchmark of {summary['instance']} on {summary['host']}"
    return fill_page(read_parts(PARTS), title, body(summary, other))


def body(summary: Summary, other: Summary | None) -> str:
    """Return what is below the title."""
    summaries = [summary, *([other] if other else [])]
    labels = [label_of(each) for each in summaries]
    parts = [_facts(summaries, labels)]
    parts += [f'<p class="note">{html.escape(str(note))}</p>' for note in summary.get("notes") or []]
    for workload in dict.fromkeys(entry["workload"] for each in summaries for entry in each["results"]):
        results = [[entry for entry in each["results"] if entry["workload"] == workload] for each in summaries]
        parts += ["<section>", f"<h2>{html.escape(workload)}</h2>", _lengths(results), '<div class="charts">']
        parts += [_chart(chart, results, labels) for chart in CHARTS if _has(chart[0], results)]
        parts += ["</div>", _table(results, labels), "</section>"]
    return "\n".join(part for part in parts if part)


def label_of(summary: Summary) -> str:
    """Return how a summary is named in legends."""
    return f"{summary['host']}/{summary['instance']} {summary['release']} {summary['plan'][:7]}"


def _facts(summaries: Sequence[Summary], labels: Sequence[str]) -> str:
    rows = []
    if len(summaries) > 1:
        heads = "".join(f'<th class="s{number}">{html.escape(label)}</th>' for number, label in enumerate(labels))
        rows.append(f"<tr><th></th>{heads}</tr>")
    for key, name in FACTS.items():
        values = [each.get(key) for each in summaries]
        if any(value is not None for value in values):
            cells = "".join(f"<td>{html.escape('' if value is None else str(value))}</td>" for value in values)
            rows.append(f"<tr><th>{name}</th>{cells}</tr>")
    return f'<table class="facts">{"".join(rows)}</table>'


def _lengths(results: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    entry = next(entries[0] for entries in results if entries)
    text = f"{entry['input_tokens']} tokens in, {entry['output_tokens']} out, {entry['repeats']} runs of each point"
    return f'<p class="soft">{html.escape(text)}; points are medians, bars reach from the lowest to the highest run</p>'


def _has(key: str, results: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    return any(key in entry for entries in results for entry in entries)


def _chart(
    chart: tuple[str, str, str, bool], results: Sequence[Sequence[Mapping[str, Any]]], labels: Sequence[str]
) -> str:
    key, title, unit, _more = chart
    series = [
        Series(label, {entry["concurrency"]: entry[key] for entry in entries if key in entry})
        for label, entries in zip(labels, results)
    ]
    return line_chart(title, unit, series)


def _table(results: Sequence[Sequence[Mapping[str, Any]]], labels: Sequence[str]) -> str:
    """Return the figures as a table; of two runs each cell has the first, the second and their ratio."""
    charts = [chart for chart in CHARTS if _has(chart[0], results)]
    heads = "".join(f'<th class="n">{html.escape(title)} ({unit})</th>' for _key, title, unit, _more in charts)
    by_step = [{entry["concurrency"]: entry for entry in entries} for entries in results]
    rows = []
    for step in sorted({step for entries in by_step for step in entries}):
        cells = "".join(_cell(chart, [entries.get(step) for entries in by_step]) for chart in charts)
        rows.append(f'<tr><td class="n">{html.escape(str(step))}</td>{cells}</tr>')
    legend = f"<caption>{' | '.join(html.escape(label) for label in labels)}</caption>" if len(labels) > 1 else ""
    head = f'<thead><tr><th class="n">at a time</th>{heads}</tr></thead>'
    return f"<table>{legend}{head}<tbody>{''.join(rows)}</tbody></table>"


def _cell(chart: tuple[str, str, str, bool], entries: Sequence[Mapping[str, Any] | None]) -> str:
    key, _title, _unit, more = chart
    medians = [entry[key]["median"] if entry and key in entry else None for entry in entries]
    text = " | ".join("-" if value is None else f"{value:,g}" for value in medians)
    if len(medians) < 2 or medians[0] is None or not medians[1]:
        return f'<td class="n">{text}</td>'
    ratio = medians[0] / medians[1]
    kind = "good" if (ratio > 1) == more and ratio != 1 else "bad" if ratio != 1 else "soft"
    return f'<td class="n">{text} <span class="{kind}">x{ratio:.2f}</span></td>'
