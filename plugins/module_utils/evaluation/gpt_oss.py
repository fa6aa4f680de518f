# SPDX-License-Identifier: GPL-3.0-or-later
"""gpt_oss.evals: the settings of gpt_oss_program_host.py, which runs it, and the meaning of its output."""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, Mapping, Sequence

from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign
from .tool import OUT, UNREADABLE, OutputError, Run, Tool, last_reason

VERSION = "0.0.9"
PROGRAM = "gpt_oss_evals.py"
_NUMBER = re.compile(r"-?[0-9]+\Z")
_LETTERS = ("A", "B", "C", "D")


def settings(run: Run) -> str:
    """Return the settings of the program."""
    return json.dumps(
        {
            "task": run.task,
            "data": run.data,
            "url": run.url,
            "model": run.model,
            "request": dict(run.request),
            "concurrency": run.concurrency,
            "timeout": run.timeout,
            "output": f"{run.work}/{OUT}/{run.task}.jsonl",
        },
        indent=2,
    )


def read_output(lines: Iterable[str], questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return id, expected, answer, correct and response of each question. Raises OutputError."""
    items: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            found = load_json(line)
            item = {
                "id": found["id"],
                "expected": str(found["expected"]),
                "answer": readable(found["answer"]),
                "correct": {0: False, 1: True}[found["score"]],
                "response": str(found["response"]),
            }
        except (ValueError, KeyError, TypeError) as exc:
            raise OutputError(
                f"line {number} of the answers of gpt_oss.evals is not as expected: {quote_foreign(repr(exc))}"
            ) from exc
        items.append(item)
    if [item["id"] for item in items] != [row["id"] for row in questions]:
        raise OutputError(
            f"gpt_oss.evals answered {len(items)} questions, expected the {len(questions)} that were asked"
        )
    return items


def readable(answer: Any) -> str:
    """Return the answer that gpt_oss.evals read: a letter or a whole number, else that it read none.

    Without an answer in the expected form it takes the first character of the response, or None.
    """
    text = str(answer)
    return text if text in _LETTERS or _NUMBER.match(text) else UNREADABLE


def _files(run: Run, questions: Sequence[Mapping[str, Any]]) -> dict[str, str]:  # noqa: ARG001
    return {"run.json": settings(run)}


TOOL = Tool(
    "gpt-oss",
    "gpt-oss",
    VERSION,
    "bin/python",
    ("gpqa", "aime25"),
    _files,
    lambda work: [f"{work}/{PROGRAM}", f"{work}/run.json"],
    lambda task: f"{task}.jsonl",
    read_output,
    last_reason,
)
