# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a data file -> the questions of a task, in the order of the file."""

import csv
import hashlib
import io
import json
import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from .tasks import EvaluationError, TaskDefinition

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FIELD = re.compile(r"\{(question|choices)\}")


@dataclass(frozen=True)
class Sample:
    """A question as lm-eval asks it, and the expected answer: a letter, a whole number or a word.

    question and choices are those of the data, for tools with prompts of their own; the first choice is the right one
    where the data says which one is.
    """

    id: str
    prompt: str
    expected: str
    question: str = ""
    choices: tuple[str, ...] = ()

    def line(self, own_prompts: bool = False) -> str:
        """Return the sample as a line of JSON for lm-eval, or for a tool with prompts of its own."""
        row: dict[str, Any] = {"id": self.id, "expected": self.expected}
        if own_prompts:
            row.update(question=self.question, choices=list(self.choices))
        else:
            row["prompt"] = self.prompt
        return json.dumps(row, ensure_ascii=False)


def read_samples(definition: TaskDefinition, text: str, where: str) -> list[Sample]:
    """Return every sample of a data file; raises EvaluationError that names file, line, column and what was found."""
    samples: list[Sample] = []
    lines: dict[str, int] = {}
    for number, row in _rows(definition, text, where):
        sample = _sample(definition, row, f"{where}: line {number}", str(len(samples) + 1))
        if sample.id in lines:
            raise EvaluationError(
                f"{where}: line {number}: found the id {sample.id!r} of line {lines[sample.id]} again, "
                "expected another one"
            )
        lines[sample.id] = number
        samples.append(sample)
    if not samples:
        raise EvaluationError(f"{where}: the file has no question, expected one in each line of {definition.format}")
    return samples


def choose(samples: Sequence[Sample], task: str, limit: int) -> list[Sample]:
    """Return at most ``limit`` samples (0: all) that depend on the task and the ids alone, in the order of the file."""
    if not limit or limit >= len(samples):
        return list(samples)
    ranked = sorted(samples, key=lambda sample: hashlib.sha256(f"{task}/{sample.id}".encode()).hexdigest())
    chosen = {sample.id for sample in ranked[:limit]}
    return [sample for sample in samples if sample.id in chosen]


def _rows(definition: TaskDefinition, text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number of the line and the row of each question."""
    if definition.format == "csv":
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        # The first line of a row, which may take several.
        number = 1
        try:
            _check_columns(definition, reader.fieldnames or [], f"{where}: line 1")
            number = reader.line_num + 1
            for row in reader:
                yield number, row
                number = reader.line_num + 1
        except csv.Error as exc:
            raise EvaluationError(f"{where}: line {number}: is not CSV: {exc}") from exc
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = load_json(line)
        except ValueError as exc:
            raise EvaluationError(f"{where}: line {number}: is not JSON: {exc}") from exc
        if not isinstance(row, dict):
            raise EvaluationError(f"{where}: line {number}: found {type(row).__name__}, expected a JSON object")
        _check_columns(definition, list(row), f"{where}: line {number}")
        yield number, row


def _check_columns(definition: TaskDefinition, found: Sequence[str], where: str) -> None:
    columns = definition.columns
    for name in (columns.question, columns.answer, *columns.choices, *([columns.id] if columns.id else [])):
        if name not in found:
            raise EvaluationError(
                f"{where}: has no column {name!r} of the task {definition.name}; {nearest(name, found)}"
            )


def _sample(definition: TaskDefinition, row: Mapping[str, Any], where: str, number: str) -> Sample:
    columns = definition.columns
    name = _cell(row, columns.id, where) if columns.id else number
    choices = [_cell(row, column, where) for column in columns.choices]
    given = tuple(choices)
    if choices and columns.answer in columns.choices:
        # The right answer has its own column: it must not always be the same letter.
        right = choices[columns.choices.index(columns.answer)]
        given = (right, *(choice for column, choice in zip(columns.choices, choices) if column != columns.answer))
        choices.sort(key=lambda choice: hashlib.sha256(f"{definition.name}/{name}/{choice}".encode()).hexdigest())
        expected = LETTERS[choices.index(right)]
    else:
        expected = _expected(definition, _cell(row, columns.answer, where), len(choices), where)
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(LETTERS, choices))
    fields = {"question": _cell(row, columns.question, where), "choices": listed}
    prompt = _FIELD.sub(lambda match: fields[match[1]], definition.prompt)
    return Sample(name, prompt, expected, fields["question"], given)


def _cell(row: Mapping[str, Any], column: str, where: str) -> str:
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise EvaluationError(f"{where}: column {column!r}: found {_short(value)}, expected a text")
    return str(value).strip()


def _expected(definition: TaskDefinition, value: str, choices: int, where: str) -> str:
    column = definition.columns.answer
    if definition.kind == "choice":
        letters = LETTERS[:choices]
        if len(value) != 1 or value.upper() not in letters:
            raise EvaluationError(
                f"{where}: column {column!r}: found {_short(value)}, expected a letter from A to {letters[-1]}"
            )
        return value.upper()
    if definition.kind == "number":
        if not re.fullmatch(r"-?[0-9]+", value):
            raise EvaluationError(f"{where}: column {column!r}: found {_short(value)}, expected a whole number")
        return str(int(value))
    if not re.fullmatch(r"\w+", value):
        raise EvaluationError(f"{where}: column {column!r}: found {_short(value)}, expected one word")
    return value


def _short(value: Any) -> str:
    text = show_value(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
