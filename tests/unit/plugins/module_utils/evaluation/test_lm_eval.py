# SPDX-License-Identifier: GPL-3.0-or-later
"""What lm-eval gets, and what is read of its output."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.lm_eval import (
    configuration,
    read_output,
    reason_of,
    task_document,
)
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import (
    UNREADABLE,
    OutputError,
    Run,
)


def extracted(kind, text):
    """Return the answer that lm-eval's filter finds with the pattern of a kind."""
    (found,) = json.loads(task_document("t", kind, "/d", {}))["filter_list"]
    pattern, take = found["filter"]
    assert (pattern["function"], pattern["group_select"], take) == ("regex", -1, {"function": "take_first"})
    every = re.findall(pattern["regex_pattern"], text)
    return every[-1].strip() if every else pattern["fallback"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("choice", "Answer: B", "B"),
        ("choice", "So.\n\n**Answer:** (C)", "C"),
        ("choice", "**Answer**: D.", "D"),
        ("choice", r"Answer: $\boxed{B}$", "B"),
        ("choice", r"Answer: $\boxed{\text{B}}$", "B"),
        ("choice", "Answer: A\nNo, wait.\nAnswer: B", "B"),
        ("choice", "answer = C", "C"),
        ("choice", "Answer: Beware", UNREADABLE),
        ("choice", "The answer is B", UNREADABLE),
        ("choice", "B", UNREADABLE),
        ("choice", "", UNREADABLE),
        ("number", "Answer: 70", "70"),
        ("number", "Answer: 070", "70"),
        ("number", "Answer: 0", "0"),
        ("number", r"**Answer:** $\boxed{204}$", "204"),
        ("number", "Answer: -7", "-7"),
        ("number", "Answer: 1\nAnswer: 100.", "100"),
        ("number", "It is 70.", UNREADABLE),
        ("number", "Answer: none\n70", UNREADABLE),
        ("word", "The fleet is ready.", "ready"),
        ("word", "**42**", "42"),
        ("word", "42\n", "42"),
        ("word", "...", UNREADABLE),
    ],
)
def test_how_an_answer_is_recognised(kind, text, expected):
    assert extracted(kind, text) == expected


def test_questions_are_columns_and_no_templates():
    task = json.loads(task_document("t", "word", "/d/s.jsonl", {"max_tokens": 5, "temperature": 0, "top_p": 1}))
    assert (task["doc_to_text"], task["doc_to_target"]) == ("prompt", "expected")
    assert task["dataset_kwargs"] == {"data_files": {"test": "/d/s.jsonl"}}
    assert task["generation_kwargs"] == {"until": [], "max_gen_toks": 5, "temperature": 0, "top_p": 1}


def test_the_instance_is_asked_by_chats():
    text = configuration(Run("t", "word", "/d", "/w", "http://127.0.0.1:8000", "a,b=c", {}, 1, 60))
    arguments = json.loads(text)["model_args"]
    assert arguments["base_url"] == "http://127.0.0.1:8000/v1/chat/completions"
    assert (arguments["model"], arguments["num_concurrent"]) == ("a,b=c", 2)


QUESTIONS = [{"id": "1", "expected": "ready"}, {"id": "2", "expected": "ready"}]


def row(name="1", expected="ready", right=1.0, **changes):
    return json.dumps(
        {"doc": {"id": name}, "target": expected, "resps": [["So ready."]], "filtered_resps": ["ready"],
         "exact_match": right, **changes}
    )  # fmt: skip


def test_answers_are_in_the_order_of_the_questions():
    items = read_output([row("2"), row("1", right=0.0)], QUESTIONS)
    assert [(item["id"], item["correct"]) for item in items] == [("1", False), ("2", True)]
    assert items[0] == {
        "id": "1", "expected": "ready", "answer": "ready", "correct": False, "response": "So ready.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([row("1")], "lm-eval wrote 1 samples, expected 2"),
        ([row("1"), row("1")], "line 2 of lm-eval's samples has a question that was not asked: '1'"),
        ([row("3")], "line 1 of lm-eval's samples has a question that was not asked: '3'"),
        ([row("1", "other")], "line 1 of lm-eval's samples has a question that was not asked: '1'"),
        ([row("1"), row("2")[:-9]], "line 2 of lm-eval's samples is not as expected: JSONDecodeError"),
        ([row("1", right=0.5)], "line 1 of lm-eval's samples is not as expected: KeyError(0.5)"),
        ([row("1", resps=[])], "line 1 of lm-eval's samples is not as expected: "),
    ],
)
def test_incomplete_output_is_no_result(lines, expected):
    with pytest.raises(OutputError) as caught:
        read_output(lines, QUESTIONS)
    assert str(caught.value).startswith(expected)


def test_why_lm_eval_failed():
    refused = (
        "x\n2026 WARNING [api] API request failed! Status code: 400, Response text: {'a': 'too long'}. Retrying...\n"
    )
    assert (
        reason_of(f"{refused}ERROR ClientResponseError(headers=...)\n")
        == "the instance answered 400: {'a': 'too long'}"
    )
    trace = (
        'Traceback (most recent call last):\n  File "x", line 1\n    x()\nModuleNotFoundError: No module named x\n\n'
    )
    assert reason_of(trace) == "ModuleNotFoundError: No module named x"
    assert reason_of("") == "it wrote nothing"
    assert len(reason_of("x" * 1000)) == 403
