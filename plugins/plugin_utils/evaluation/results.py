# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one task: made from a host's answers, and added to the scores of an evidence file."""

from __future__ import annotations

import json
import math
from typing import Any, Iterable, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.evaluation.tools import DEFAULT
from .tasks import EvaluationError

FORMAT = 1
_KEYS = ("format", "host", "instance", "model", "state", "plan", "tool", "task", "unreadable", "items", "date", "score",
         "samples", "definition_sha256", "data_sha256", "limit", "request")  # fmt: skip
# Two-sided 95 %.
_Z = 1.959964


def make_result(answers: Mapping[str, Any], settings: Mapping[str, Any], host: str, date: str) -> dict[str, Any]:
    """Return the result of a task.

    ``answers`` are what the host sent, ``settings`` the plan of the task: definition_sha256, data_sha256, limit,
    request, samples. Raises EvaluationError where the host has answered another number of questions.
    """
    items = answers["items"]
    if len(items) != settings["samples"]:
        raise EvaluationError(
            f"{host}: {settings['task']}: found {len(items)} answers, expected {settings['samples']}; evaluate it again"
        )
    kept = ("definition_sha256", "data_sha256", "limit", "request")
    return {
        "format": FORMAT,
        "host": host,
        **{key: value for key, value in answers.items() if key != "items"},
        **{key: settings[key] for key in kept},
        "date": date,
        "samples": len(items),
        "score": round(sum(bool(item["correct"]) for item in items) / len(items), 6),
        "items": items,
    }


def check_result(data: Any, where: str) -> dict[str, Any]:
    """Return the data of a result file; raises EvaluationError where a key is missing or its figures disagree."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise EvaluationError(
            f"{where}: is not a result of evaluate.yml in format {FORMAT}; remove it to evaluate again"
        )
    missing = [key for key in _KEYS if key not in data]
    if missing:
        raise EvaluationError(f"{where}: {missing[0]} is missing; remove the file to evaluate again")
    try:
        correct = sum(bool(item["correct"]) and bool(item["id"]) for item in data["items"])
    except (KeyError, TypeError) as exc:
        raise EvaluationError(
            f"{where}: items: an answer has no id or correct; remove the file to evaluate again"
        ) from exc
    if (
        len(data["items"]) != data["samples"]
        or not data["samples"]
        or round(correct / data["samples"], 6) != data["score"]
    ):
        raise EvaluationError(
            f"{where}: {correct} of {len(data['items'])} answers are right, but the score is {data['score']} of "
            f"{data['samples']}; the file was changed by hand, remove it to evaluate again"
        )
    return dict(data)


def render(result: Mapping[str, Any]) -> str:
    """Return the text of a result file: an answer on each line, so that two runs can be compared with diff."""
    head = {key: value for key, value in result.items() if key != "items"}
    lines = ",\n".join("  " + json.dumps(item, sort_keys=True, ensure_ascii=False) for item in result["items"])
    text = json.dumps(head, indent=1, sort_keys=True, ensure_ascii=False)
    return f'{text[:-2]},\n "items": [\n{lines}\n ]\n}}\n'


def interval(score: float, samples: int) -> tuple[float, float]:
    """Return the 95 % confidence interval (Wilson) of a share of right answers."""
    centre = score + _Z**2 / (2 * samples)
    spread = _Z * math.sqrt(score * (1 - score) / samples + _Z**2 / (4 * samples**2))
    scale = 1 + _Z**2 / samples
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def add_scores(evidence: Mapping[str, Any], results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the evidence with the scores of results (task -> score and samples); scores of other tasks remain.

    Raises EvaluationError for results of another model or release, and for a run of a part of the questions.
    """
    scores = dict(evidence.get("scores") or {})
    for result in results:
        plan = result["plan"]
        for key, found in (("model", plan.get("model") or result["model"]), ("release", plan.get("vllm_version"))):
            if found != evidence.get(key):
                raise EvaluationError(
                    f"{result['task']}: {key}: the evaluated instance has {show_value(found)}, the evidence "
                    f"{show_value(evidence.get(key))}; scores belong to the evidence of the same model and release"
                )
        if result["limit"]:
            raise EvaluationError(
                f"{result['task']}: only {result['samples']} chosen questions were asked (evaluate_samples); scores of "
                "evidence are those of all questions"
            )
        # The other tools have prompts of their own, so their scores are not comparable.
        own = result["tool"].startswith(f"{DEFAULT} ")
        name = result["task"] if own else f"{result['task']} ({result['tool']})"
        scores[name] = {"score": result["score"], "samples": result["samples"]}
    return {**evidence, "scores": dict(sorted(scores.items()))}
