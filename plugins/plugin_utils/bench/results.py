# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the results of a benchmark: summary, evidence and page."""

import json
from datetime import datetime, timezone
from typing import Any, Mapping, NamedTuple, Sequence

from ...module_utils.vllm.plan_document import PlanDocument
from .evidence import evidence, evidence_path, evidence_text
from .page import bench_page
from .records import SUMMARY, Records
from .summary import Record, slowed_notes


class Written(NamedTuple):
    """Values for the result of the task, lines to show, and what slowed the chips down."""

    values: dict[str, Any]
    lines: list[str]
    slowed: list[str]


def evidence_of(plan: PlanDocument, info: Mapping[str, Any], driver: str, found: Sequence[Record]) -> dict[str, Any]:
    """Return the evidence with today's date."""
    return evidence(plan, info, driver, found, datetime.now(timezone.utc).strftime("%Y-%m-%d"))


def write_results(
    records: Records,
    found: Sequence[Record],
    notes: Sequence[str],
    summary: Mapping[str, Any],
    other: Mapping[str, Any] | None,
) -> Written:
    """Write evidence, the summary with its notes, and the page beside that of ``other``."""
    document = {key: value for key, value in summary.items() if key not in ("host", "instance")}
    slowed = slowed_notes(found)
    notes = [*notes, *slowed]
    summary = {**summary, "notes": notes}
    records.write(SUMMARY, json.dumps(summary, indent=1) + "\n")
    paths = {
        "evidence": records.write("evidence.yml", evidence_text(document)),
        "page": records.write("report.html", bench_page(summary, other)),
    }
    place = evidence_path(document)
    return Written(
        {
            "directory": str(records.directory),
            "notes": notes,
            "results": document["results"],
            "evidence_path": place,
            **paths,
        },
        [f"page {paths['page']}", f"evidence {paths['evidence']} (for catalog/evidence/{place})"],
        list(slowed),
    )
