# SPDX-License-Identifier: GPL-3.0-or-later
"""The definition of a task: the data that it reads, its questions, and how an answer is recognised."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.evaluation.lm_eval import KINDS

FORMATS = ("csv", "jsonl")
NAME = re.compile(r"[a-z0-9][a-z0-9_]*\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_REQUIRED = ("title", "kind", "format", "columns", "prompt", "max_tokens")
_OPTIONAL = ("source", "file", "sha256")
_COLUMNS = ("question", "answer", "choices", "id")
# Parameters that lm-eval and the playbook set themselves.
_RESERVED = ("model", "messages", "prompt", "stream", "n", "stop", "until", "max_gen_toks", "seed")


class EvaluationError(ValueError):
    """An evaluation cannot be made; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Columns:
    """The columns of a data file. choices is empty if answers are not letters; id is empty for the line's number."""

    question: str
    answer: str
    choices: tuple[str, ...] = ()
    id: str = ""


@dataclass(frozen=True)
class TaskDefinition:
    """A task: its prompt has {question} and, where there are choices, {choices}; max_tokens limits an answer.

    file and sha256 are those of a data file that lies beside the definition, empty where the site brings the data.
    """

    name: str
    title: str
    kind: str
    format: str
    columns: Columns
    prompt: str
    max_tokens: int
    file: str = ""
    sha256: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of what decides the questions and the judgement of answers, in hexadecimal digits."""
        parts = {key: value for key, value in asdict(self).items() if key not in ("title", "file", "sha256")}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def parse_task(name: str, data: Any, where: str) -> TaskDefinition:
    """Return the definition in the data of a file; raises EvaluationError that names file, key and what was found."""
    if not isinstance(data, Mapping):
        raise EvaluationError(f"{where}: found {type(data).__name__}, expected a mapping with {', '.join(_REQUIRED)}")
    for key in data:
        if key not in (*_REQUIRED, *_OPTIONAL):
            raise EvaluationError(f"{where}: unknown key {show_value(key)}; {nearest(key, (*_REQUIRED, *_OPTIONAL))}")
    missing = [key for key in _REQUIRED if not data.get(key)]
    if missing:
        raise EvaluationError(f"{where}: {missing[0]} is missing, expected it beside {', '.join(_REQUIRED)}")
    for key, known in (("kind", KINDS), ("format", FORMATS)):
        if data[key] not in known:
            raise EvaluationError(f"{where}: {key}: found {show_value(data[key])}, expected one of {', '.join(known)}")
    if isinstance(data["max_tokens"], bool) or not isinstance(data["max_tokens"], int) or data["max_tokens"] < 1:
        raise EvaluationError(
            f"{where}: max_tokens: found {show_value(data['max_tokens'])}, expected a whole number above 0"
        )
    columns = _columns(data["columns"], data["kind"], where)
    prompt = str(data["prompt"]).strip()
    for field in ("question", "choices") if columns.choices else ("question",):
        if "{" + field + "}" not in prompt:
            raise EvaluationError(f"{where}: prompt has no {{{field}}}, so the model would not see it")
    digest = str(data.get("sha256") or "")
    if digest and not DIGEST.match(digest):
        raise EvaluationError(f"{where}: sha256: found {show_value(digest)}, expected 64 hexadecimal digits")
    return TaskDefinition(
        name,
        str(data["title"]),
        data["kind"],
        data["format"],
        columns,
        prompt,
        data["max_tokens"],
        str(data.get("file") or ""),
        digest,
    )


def _columns(data: Any, kind: str, where: str) -> Columns:
    if not isinstance(data, Mapping):
        raise EvaluationError(
            f"{where}: columns: found {show_value(data)}, expected a mapping with question and answer"
        )
    for key in data:
        if key not in _COLUMNS:
            raise EvaluationError(f"{where}: columns: unknown key {show_value(key)}; {nearest(key, _COLUMNS)}")
    for key in ("question", "answer"):
        if not data.get(key):
            raise EvaluationError(f"{where}: columns: {key} is missing, expected the name of a column of the data")
    choices = data.get("choices") or []
    if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) > 26:
        raise EvaluationError(
            f"{where}: columns: choices: found {show_value(choices)}, expected a list of at most 26 columns"
        )
    if (kind == "choice") != (len(choices) > 1):
        expected = "two or more columns" if kind == "choice" else "none"
        raise EvaluationError(f"{where}: columns: choices: found {len(choices)}, expected {expected} for kind {kind}")
    return Columns(
        str(data["question"]), str(data["answer"]), tuple(str(each) for each in choices), str(data.get("id") or "")
    )


def select(requested: Any, known: Mapping[str, Any]) -> list[str]:
    """Return the requested names of tasks, from a list or a text with commas. Raises EvaluationError."""
    words = requested.split(",") if isinstance(requested, str) else requested or []
    names = list(dict.fromkeys(str(word).strip() for word in words if str(word).strip()))
    if not names:
        raise EvaluationError(
            f"evaluate_tasks is missing: name one or more tasks, such as -e evaluate_tasks=made; {nearest('', known)}"
        )
    for name in names:
        if name not in known:
            raise EvaluationError(f"evaluate_tasks: no task {name!r}; {nearest(name, known)}")
    return names


def request_of(definition: TaskDefinition, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of each request: max_tokens, temperature and the site's own parameters.

    Raises EvaluationError for a parameter that the evaluation sets itself.
    """
    for key in given:
        if key in _RESERVED:
            raise EvaluationError(f"evaluate_request: {key} is set by the evaluation; leave it out")
    request = {"max_tokens": definition.max_tokens, "temperature": 0, **given}
    tokens = request["max_tokens"]
    if isinstance(tokens, bool) or not str(tokens).isascii() or not str(tokens).isdigit() or int(tokens) < 1:
        raise EvaluationError(
            f"evaluate_request: max_tokens: found {show_value(tokens)}, expected a whole number above 0"
        )
    return {**request, "max_tokens": int(tokens)}
