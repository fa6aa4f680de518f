# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The input of lm-eval (a task, a configuration, an environment), and the meaning of its output."""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, Mapping

from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_json import load_json
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_text import quote_foreign

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
UNREADABLE = "[no answer]"
# The keys that the requests of lm-eval call otherwise.
_RENAMED = {"max_tokens": "max_gen_toks"}
_LONGEST = 400
_NOISE = re.compile(r"^(Traceback|\s|$|During handling|The above exception)")
_REFUSED = re.compile(
    r"API request failed(?:! Status code: (\d+), Response text| with error message): (.*?)\. Retrying"
)


class OutputError(Exception):
    """lm-eval's output is not that of a complete run; the message is the whole sentence without the host."""


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


def configuration(task: str, work: str, url: str, model: str, concurrency: int, timeout: int) -> str:
    """Return lm-eval's configuration of a run that asks ``url``, an address without a path, by chats.

    The key is not in it: lm-eval reads it from the environment (OPENAI_API_KEY).
    """
    return json.dumps(
        {
            "model": "local-chat-completions",
            "model_args": {
                "model": model,
                "base_url": f"{url}/v1/chat/completions",
                # With one request at a time, lm-eval uses other code with other messages.
                "num_concurrent": max(concurrency, 2),
                "max_retries": 3,
                "timeout": timeout,
                "tokenizer_backend": "none",
                "tokenized_requests": False,
            },
            "tasks": [task],
            "include_path": f"{work}/tasks",
            "apply_chat_template": True,
            "batch_size": 1,
            "log_samples": True,
            "output_path": f"{work}/out",
        },
        indent=2,
    )


def environment(work: str, key: str) -> dict[str, str]:
    """Return the whole environment of lm-eval: it writes below ``work`` only and asks no hub."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": work,
        "TMPDIR": work,
        "HF_HOME": f"{work}/hf",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # lm-eval sends the header in any case; vLLM without a key ignores it.
        "OPENAI_API_KEY": key or "none",
    }


def read_output(lines: Iterable[str], expected: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return id, expected, answer, correct and response of each sample, from lm-eval's lines of samples.

    ``expected`` has the answer of every sample by id. Raises OutputError for a sample that is missing, unknown or
    incomplete.
    """
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
        return quote_foreign(f"the instance answered {status}: {text}", _LONGEST)
    lines = [line for line in log.splitlines() if not _NOISE.match(line)]
    return quote_foreign(lines[-1], _LONGEST) if lines else "it wrote nothing"
