# SPDX-License-Identifier: GPL-3.0-or-later
"""The format of an evidence file: the measurements of a model on a chip, the tool and the settings.

catalog/evidence/schema.json has the same rules, for editors. docs/reference/evidence.md explains the keys.
"""

import datetime
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.vllm.plan_document import PlanDocument
from ..common.checks import A_NAME, ABOVE_ZERO, ANY_TEXT, COUNT, Check, is_number, problem_of, text_check
from ..common.versions import sort_key

MEASURED, ESTIMATED, REPORTED = STATUSES = ("measured", "estimated", "reported")
# Weights: of the shape of the model alone, and without a pinned revision.
RANDOM, UNKNOWN = "random", "unknown"
# The path of a file below a directory of evidence, without its suffix.
PLACE = "{model}/{accelerator}x{count}/{release}-{date}"

# Figures of a result: the median, lowest and highest of its repeats.
FIGURES = {
    "output_tokens_per_second": "tokens/s",
    "ttft_ms": "ms",
    "tpot_ms": "ms",
    "itl_p99_ms": "ms",
    "joules_per_token": "J",
}
SPREAD = ("lowest", "median", "highest")


class EvidenceError(ValueError):
    """A file of evidence is wrong; the message names file and key and is the whole sentence for the user."""


@dataclass(frozen=True)
class Evidence:
    """One checked file. ``name`` is its path below the directory of evidence, ``document`` is its content."""

    name: str
    document: Mapping[str, Any]
    status: str
    source: str
    date: str
    model: str
    weights: str
    release: str
    accelerator: str
    count: int
    preset: str | None
    results: Sequence[Mapping[str, Any]]


def _is_date(value: Any) -> bool:
    try:
        datetime.date.fromisoformat(str(value))
    except ValueError:
        return False
    return isinstance(value, (str, datetime.date)) and not isinstance(value, datetime.datetime)


def _is_spread(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != set(SPREAD) or not all(map(is_number, value.values())):
        return False
    return bool(0 <= value["lowest"] <= value["median"] <= value["highest"])


def _is_score(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"score", "samples"} and all(map(is_number, value.values()))


SHA256 = text_check(r"[0-9a-f]{64}", "a sha256 in 64 hexadecimal digits")
DATE: Check = (_is_date, "a date, like 2026-11-23")
SPREAD_CHECK: Check = (
    _is_spread,
    "the mapping of median, lowest and highest, in which the median is between the others",
)
WORDS: Check = (
    lambda value: isinstance(value, list) and all(isinstance(word, str) for word in value),
    "a list of texts",
)
VARIABLES: Check = (
    lambda value: isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair),
    "a mapping of variables to texts",
)
SCORES: Check = (
    lambda value: isinstance(value, dict) and all(isinstance(k, str) and _is_score(v) for k, v in value.items()),
    "a mapping of tasks to their score and samples",
)

KEYS: dict[str, Check] = {
    "status": (lambda value: value in STATUSES, "measured, estimated or reported"),
    "source": ANY_TEXT,
    "date": DATE,
    "note": ANY_TEXT,
    "model": text_check(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*", "ORGANISATION/NAME"),
    "weights": text_check(
        rf"{RANDOM}|{UNKNOWN}|[0-9a-f]{{40}}", "a revision in 40 hexadecimal digits, random or unknown"
    ),
    "release": text_check(r"[0-9]+(\.[0-9]+)+([a-z]+[0-9]+)?", "a version of vLLM in quotes, like '0.33.0'"),
    "accelerator": A_NAME,
    "count": COUNT,
    "preset": ANY_TEXT,
    "plan": SHA256,
    "argv": WORDS,
    "env": VARIABLES,
    "driver": ANY_TEXT,
    "power_limit_watts": ABOVE_ZERO,
    "start_seconds": ABOVE_ZERO,
    "results": (lambda value: isinstance(value, list), "a list of results"),
    "scores": SCORES,
    "raw_sha256": SHA256,
}
REQUIRED = ("status", "source", "date", "model", "weights", "release", "accelerator", "count", "results")
RESULT: dict[str, Check] = {
    "workload": ANY_TEXT,
    "input_tokens": COUNT,
    "output_tokens": COUNT,
    "concurrency": COUNT,
    "repeats": COUNT,
    **dict.fromkeys(FIGURES, SPREAD_CHECK),
}
RESULT_REQUIRED = ("workload", "input_tokens", "output_tokens", "concurrency", "repeats")


def read_document(document: Any, name: str, file: str) -> Evidence:
    """Return the evidence in a document; ``name`` is its place below the directory, ``file`` its path for messages.

    Raises EvidenceError for the first fault, also if the content does not match the path.
    """
    _check(document, KEYS, REQUIRED, "", file)
    for number, result in enumerate(document["results"]):
        where = f"results[{number}]"
        _check(result, RESULT, RESULT_REQUIRED, where, file)
        if not set(result) & set(FIGURES):
            raise EvidenceError(f"{file}: {where}: found no figure, expected at least one of {', '.join(FIGURES)}")
    if not (document["results"] or document.get("scores") or "start_seconds" in document):
        raise EvidenceError(f"{file}: results, scores: found nothing, expected one of them, or start_seconds")
    document = {**document, "date": str(document["date"])}
    place = PLACE.format(**document)
    if not re.fullmatch(re.escape(place) + r"(-[a-z0-9][a-z0-9_.-]*)?", name):
        raise EvidenceError(
            f"{file}: found the content of {place}.yml; expected the file at that path, or {place}-NAME.yml"
        )
    values = {key: document.get(key) for key in Evidence.__annotations__ if key not in ("name", "document")}
    return Evidence(name=name, document=document, **values)


def _check(value: Any, known: Mapping[str, Check], required: Sequence[str], where: str, file: str) -> None:
    """Raise EvidenceError for a key that is unknown or missing, and for a value of another form."""
    problem = problem_of(value, known, where, required)
    if problem:
        raise EvidenceError(f"{file}: {problem}")


def plan_digest(plan: PlanDocument) -> str:
    """Return the sha256 that names a plan in evidence: its argv and env as JSON with sorted keys."""
    return digest_of({"argv": plan["argv"], "env": plan["env"]})


def digest_of(value: Any) -> str:
    """Return the sha256 of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def is_older(evidence: Evidence, release: str) -> bool:
    """Return whether the evidence is of an older release of vLLM; False if ``release`` is not a version."""
    try:
        return bool(sort_key(evidence.release) < sort_key(release))
    except ValueError:
        return False
