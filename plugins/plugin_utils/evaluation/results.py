# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one task: made from a host's answers, and added to the scores of an evidence file."""

import json
import math
from typing import Any, Iterable, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.evaluation.tool import UNREADABLE
from ...module_utils.evaluation.tools import DEFAULT
from .tasks import EvaluationError

FORMAT = 1
_KEYS = ("format", "host", "instance", "model", "state", "plan", "tool", "task", "unreadable", "items", "date", "score",
         "samples", "definition_sha256", "data_sha256", "limit", "request")  # fmt: skip
_TEXT: tuple[type, str] = (str, "a text")
_NUMBER: tuple[type, str] = (int, "a whole number")
# What a host says of its answers, and of each; all else is the controller's word.
_ANSWERS = {"model": _TEXT, "state": _TEXT, "plan": (Mapping, "a mapping"), "items": (list, "a list")}
_ITEM = {**dict.fromkeys(("id", "expected", "answer", "response"), _TEXT), "correct": (bool, "true or false")}
_RESULT = {
    **_ANSWERS,
    **dict.fromkeys(("host", "instance", "task", "tool"), _TEXT),
    **dict.fromkeys(("unreadable", "samples"), _NUMBER),
}
# Two-sided 95 %.
_Z = 1.959964


def check_answers(data: Any, where: str) -> dict[str, Any]:
    """Return what a host is believed of its answers: what it serves, and each answer. Raises EvaluationError."""
    _check_kinds(data, _ANSWERS, where)
    for item in data["items"]:
        _check_kinds(item, _ITEM, f"{where}: an answer")
    if len({item["id"] for item in data["items"]}) != len(data["items"]):
        raise EvaluationError(f"{where}: found two answers with one id, expected one for each question")
    items = [{key: item[key] for key in _ITEM} for item in data["items"]]
    return {**{key: data[key] for key in _ANSWERS}, "items": items}


def _check_kinds(data: Any, kinds: Mapping[str, tuple[type, str]], where: str) -> None:
    if not isinstance(data, Mapping):
        raise EvaluationError(f"{where}: found {show_value(data)}, expected a mapping")
    for key, (kind, name) in kinds.items():
        value = data.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise EvaluationError(f"{where}: {key}: found {show_value(value)}, expected {name}")


def make_result(answers: Mapping[str, Any], settings: Mapping[str, Any], host: str, date: str) -> dict[str, Any]:
    """Return the result of a task.

    ``answers`` are what check_answers returned, ``settings`` the plan of the task: instance, task, tool,
    definition_sha256, data_sha256, limit, request, samples. Raises EvaluationError where the host has answered another
    number of questions.
    """
    items = answers["items"]
    if len(items) != settings["samples"] or not items:
        raise EvaluationError(
            f"{host}: {settings['task']}: found {len(items)} answers, expected {settings['samples']}; evaluate it again"
        )
    kept = ("instance", "task", "tool", "definition_sha256", "data_sha256", "limit", "request")
    return {
        "format": FORMAT,
        **{key: answers[key] for key in _ANSWERS if key != "items"},
        "host": host,
        **{key: settings[key] for key in kept},
        "date": date,
        "samples": len(items),
        "unreadable": sum(item["answer"] == UNREADABLE for item in items),
        "score": round(sum(item["correct"] for item in items) / len(items), 6),
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
    _check_kinds(data, _RESULT, where)
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
