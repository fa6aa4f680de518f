# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the evidence for a plan, and cite it: one line for each file."""

import re
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.vllm.plan_document import PlanDocument
from ..common.versions import sort_key
from .document import ESTIMATED, MEASURED, RANDOM, Evidence, is_older, plan_digest

# The order of evidence by its status, the best first.
WORTH = {"measured": 2, "reported": 1, "estimated": 0}


def cite(plan: PlanDocument, evidence: Iterable[Evidence]) -> str:
    """Return the line on the evidence for a plan: the nearest file, or that there is none.

    Empty if there is no evidence and none is needed: a plan without a preset makes no claim about speed.
    """
    found = nearest_evidence(plan, evidence)
    if found is None:
        if not plan.get("preset"):
            return ""
        hardware = f"{chip_count(plan)} x {chip_name(plan)}"
        return (
            f"preset {plan['preset']}: no evidence for {plan['model']} on {hardware}; its settings are unproven there"
        )
    differences = _differences(plan, found)
    return describe(found) + (f"; {', '.join(differences)}" if differences else "")


def nearest_evidence(plan: PlanDocument, evidence: Iterable[Evidence]) -> Evidence | None:
    """Return the evidence for the same model, chip and number of chips that is nearest to a plan, None without any.

    The same plan comes first, then the same preset, then the same release, then what has results, was measured, and is
    newest.
    """
    count = chip_count(plan)
    same = [
        entry
        for entry in evidence
        if (entry.model, entry.accelerator, entry.count) == (plan["model"], chip_name(plan), count)
    ]
    return max(same, key=lambda entry: _nearness(plan, entry), default=None)


def _nearness(plan: PlanDocument, entry: Evidence) -> tuple[Any, ...]:
    same_plan = entry.document.get("plan") == plan_digest(plan)
    return (
        same_plan,
        entry.preset == plan.get("preset"),
        entry.release == plan["vllm_version"],
        bool(entry.results),
        WORTH[entry.status],
        sort_key(entry.release),
        entry.date,
    )


def _differences(plan: PlanDocument, found: Evidence) -> list[str]:
    """Return the differences between the plan of the evidence and this plan, as clauses."""
    clauses = []
    if found.preset != plan.get("preset"):
        clauses.append(f"of {f'preset {found.preset}' if found.preset else 'no preset'}")
        clauses += [f"preset {plan['preset']} has no evidence on this hardware"] if plan.get("preset") else []
    if is_older(found, plan["vllm_version"]):
        clauses.append(f"older than vLLM {plan['vllm_version']}")
    elif found.release != plan["vllm_version"]:
        clauses.append(f"not of vLLM {plan['vllm_version']}")
    return clauses


def describe(evidence: Evidence) -> str:
    """Return one file in a line: its figures, the release, the date, and remarks."""
    seconds = evidence.document.get("start_seconds")
    figures = [_figure(result) for result in evidence.results] + ([f"start {seconds:g} s"] if seconds else [])
    scores = [f"{task} {entry['score']:g}" for task, entry in (evidence.document.get("scores") or {}).items()]
    weights = ", random weights" if evidence.weights == RANDOM else ""
    status = "" if evidence.status == MEASURED else f"{evidence.status} by {evidence.source}: "
    idle = [] if evidence.results else ["nothing measured under load"]
    return f"{status}{', '.join([*figures, *scores, *idle])} (vLLM {evidence.release}, {evidence.date}{weights})"


def _figure(result: Mapping[str, Any]) -> str:
    """Return the first figure of a result with its concurrency; the throughput where it was measured."""
    if "output_tokens_per_second" in result:
        return f"{result['output_tokens_per_second']['median']:,.0f} tokens/s at {result['concurrency']}"
    for key, unit in (("ttft_ms", "TTFT"), ("itl_p99_ms", "ITL p99"), ("tpot_ms", "TPOT")):
        if key in result:
            return f"{unit} {result[key]['median']:,.0f} ms at {result['concurrency']}"
    return f"{result['joules_per_token']['median']:g} J/token at {result['concurrency']}"


def outdated(
    evidence: Iterable[Evidence], release: str, model: str = "", accelerator: str = ""
) -> list[dict[str, Any]]:
    """Return the evidence that is older than a release as rows: name, release, date, status.

    Estimates are not among it: they are of whatever release their tool knows, and no benchmark replaces them.
    ``model`` and ``accelerator`` limit it to one of them where they are not empty.
    """
    return [
        {"name": entry.name, "release": entry.release, "date": entry.date, "status": entry.status}
        for entry in evidence
        if entry.status != ESTIMATED
        and is_older(entry, release)
        and model in ("", entry.model)
        and accelerator in ("", entry.accelerator)
    ]


def outdated_lines(rows: Sequence[Mapping[str, Any]], release: str) -> list[str]:
    """Return a line for each model and hardware of the rows of ``outdated``."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row["name"].rpartition("/")[0], []).append(row)
    lines = []
    for place, found in sorted(grouped.items()):
        versions = ", ".join(sorted({row["release"] for row in found}, key=sort_key))
        files = f"{len(found)} file{'' if len(found) == 1 else 's'}"
        lines.append(
            f"Evidence older than vLLM {release}: {place}, {files} of vLLM {versions}; bench.yml makes new evidence"
        )
    return lines


def chip_name(plan: PlanDocument) -> str:
    """Return the chip of a plan as evidence names it: parts of chips are hardware of their own (h200_3x2g_35gb)."""
    return re.sub(r"[^a-z0-9]", "_", "_".join(filter(None, (plan["accelerator"], plan.get("partition")))).lower())


def chip_count(plan: PlanDocument) -> int:
    """Return the number of chips of a plan; 1 for a processor."""
    return len(plan.get("chips") or []) or 1
