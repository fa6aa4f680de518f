# SPDX-License-Identifier: GPL-3.0-or-later
"""lm-eval: its input (a task and a configuration), and the meaning of its output."""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, Mapping, Sequence

from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign
from .tool import OUT, UNREADABLE, OutputError, Run, Tool, last_reason, shorten

VERSION = "0.4.13"
# How an answer is recognised in the text of a response: the last match counts. A response without one is unreadable.
_PATTERNS = {
    # "Answer: B", "**Answer:** (B)", "Answer: \\boxed{B}"
    "choice": r"(?i:answer)[*_\s]*[:=][^A-Za-z\n]*(?:\\?(?:boxed|text|textbf|mathrm|mathbf)\{)*\(?([A-Z])\b",
    # The same with a whole number; zeros in front do not count.
    "number": r"(?i:answer)[*_\s]*[:=][^1-9\n-]*?(-?(?!0\d)\d+)",
    # The last word of the response.
    "word": r"(\w+)\W*\Z",
}
KINDS = tuple(_PATTERNS)
# The keys that the requests of lm-eval call otherwise.
_RENAMED = {"max_tokens": "max_gen_toks"}
_REFUSED = re.compile(
    r"API request failed(?:! Status code: (\d+), Response text| with error message): (.*?)\. Retrying"
)


def task_document(task: str, kind: str, data: str, request: Mapping[str, Any]) -> str:
    """Return lm-eval's definition of a task over the samples in the file ``data``; JSON is YAML."""
    generation = {_RENAMED.get(key, key): value for key, value in request.items()}
    return json.dumps(
        {
            "task": task,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": data}},
            "test_split": "test",
            "output_type": "generate_until",
            # Names of columns, so that no question is read as a template.
            "doc_to_text": "prompt",
            "doc_to_target": "expected",
            "generation_kwargs": {"until": [], **generation},
            "filter_list": [
                {
                    "name": "answer",
                    "filter": [
                        {
                            "function": "regex",
                            "regex_pattern": _PATTERNS[kind],
                            "group_select": -1,
                            "fallback": UNREADABLE,
                        },
                        {"function": "take_first"},
                    ],
                }
            ],
            "metric_list": [
                {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_case": True}
            ],
            "metadata": {"version": 1},
        },
        indent=2,
    )


def configuration(run: Run) -> str:
    """Return lm-eval's configuration of a run that asks by chats.

    The key is not in it: lm-eval reads it from the environment (OPENAI_API_KEY).
    """
    return json.dumps(
        {
            "model": "local-chat-completions",
            "model_args": {
                "model": run.model,
                "base_url": f"{run.url}/v1/chat/completions",
                # With one request at a time, lm-eval uses other code with other messages.
                "num_concurrent": max(run.concurrency, 2),
                "max_retries": 3,
                "timeout": run.timeout,
                "tokenizer_backend": "none",
                "tokenized_requests": False,
            },
            "tasks": [run.task],
            "include_path": f"{run.work}/tasks",
            "apply_chat_template": True,
            "batch_size": 1,
            "log_samples": True,
            "output_path": f"{run.work}/{OUT}",
        },
        indent=2,
    )


def read_output(lines: Iterable[str], questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return id, expected, answer, correct and response of each sample, from lm-eval's lines of samples.

    Raises OutputError for a sample that is missing, unknown or incomplete.
    """
    expected = {row["id"]: row["expected"] for row in questions}
    items: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        try:
            found = load_json(line)
            name = found["doc"]["id"]
            item = {
                "id": name,
                "expected": found["target"],
                "answer": _first(found["filtered_resps"]),
                "correct": {0: False, 1: True}[found["exact_match"]],
                "response": _first(_first(found["resps"])),
            }
        except (ValueError, KeyError, IndexError, TypeError) as exc:
            why = quote_foreign(repr(exc))
            raise OutputError(f"line {number} of lm-eval's samples is not as expected: {why}") from exc
        if not isinstance(name, str) or name not in expected or expected[name] != item["expected"] or name in items:
            what = quote_foreign(repr(name))
            raise OutputError(f"line {number} of lm-eval's samples has a question that was not asked: {what}")
        items[name] = item
    if len(items) != len(expected):
        raise OutputError(f"lm-eval wrote {len(items)} samples, expected {len(expected)}")
    return [items[name] for name in expected]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


def reason_of(log: str) -> str:
    """Return why lm-eval failed: what the server answered, else the last line of its log that is a reason."""
    refused = _REFUSED.findall(log)
    if refused:
        status, text = refused[-1]
        return shorten(f"the instance answered {status}: {text}")
    return last_reason(log)


def _files(run: Run, questions: Sequence[Mapping[str, Any]]) -> dict[str, str]:  # noqa: ARG001
    return {
        f"tasks/{run.task}.yaml": task_document(run.task, run.kind, run.data, run.request),
        "run.yaml": configuration(run),
    }


TOOL = Tool(
    "lm-eval",
    "lm-eval",
    VERSION,
    "bin/lm_eval",
    (),
    _files,
    lambda work: ["run", "--config", f"{work}/run.yaml"],
    lambda task: f"*/samples_{task}_*.jsonl",
    read_output,
    reason_of,
)
