# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.files import find_tasks, load_task
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import (
    EvaluationError,
    parse_task,
    request_of,
    select,
)

GOOD = {
    "title": "a set",
    "kind": "choice",
    "format": "csv",
    "columns": {"question": "Q", "choices": ["A", "B"], "answer": "Answer"},
    "prompt": "{question}\n{choices}",
    "max_tokens": 10,
}


def without(*keys):
    return {key: value for key, value in GOOD.items() if key not in keys}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([], "t.yml: found list, expected a mapping"),
        ({**GOOD, "promt": ""}, "t.yml: unknown key 'promt'; nearest: 'prompt'"),
        (without("title"), "t.yml: title is missing"),
        ({**GOOD, "kind": "letter"}, "t.yml: kind: found 'letter', expected one of choice, number, word"),
        ({**GOOD, "format": "parquet"}, "t.yml: format: found 'parquet', expected one of csv, jsonl"),
        ({**GOOD, "max_tokens": "10"}, "t.yml: max_tokens: found '10', expected a whole number above 0"),
        ({**GOOD, "max_tokens": True}, "t.yml: max_tokens: found true, expected a whole number above 0"),
        ({**GOOD, "prompt": "{question}"}, "t.yml: prompt has no {choices}, so the model would not see it"),
        ({**GOOD, "sha256": "12"}, "t.yml: sha256: found '12', expected 64 hexadecimal digits"),
        ({**GOOD, "columns": {"question": "Q", "anwser": "A"}}, "unknown key 'anwser'; nearest: 'answer'"),
        ({**GOOD, "columns": {"question": "Q"}}, "columns: answer is missing"),
        (
            {**GOOD, "columns": {"question": "Q", "answer": "A"}},
            "found 0, expected two or more columns for kind choice",
        ),
        ({**GOOD, "kind": "word"}, "found 2, expected none for kind word"),
    ],
)
def test_a_wrong_definition_is_one_sentence(data, expected):
    with pytest.raises(EvaluationError) as caught:
        parse_task("t", data, "t.yml")
    assert expected in str(caught.value)


def test_what_decides_the_questions_and_nothing_else_is_in_the_digest():
    digest = parse_task("t", GOOD, "t.yml").digest
    assert parse_task("t", {**GOOD, "title": "another", "sha256": "0" * 64, "file": "x"}, "t.yml").digest == digest
    for change in ({"prompt": "{question} {choices}"}, {"max_tokens": 11}, {"format": "jsonl"}):
        assert parse_task("t", {**GOOD, **change}, "t.yml").digest != digest


def test_the_bundled_definitions_are_valid():
    found = {name: load_task(path) for name, path in find_tasks([]).items()}
    assert sorted(found) == ["aime25", "basics", "gpqa", "made", "mmlu"]
    assert [name for name, task in found.items() if task.file] == ["basics", "made"]


@pytest.mark.parametrize("requested", ["mmlu, gpqa", ["mmlu", "gpqa", "mmlu"]])
def test_tasks_are_named_in_a_list_or_a_text(requested):
    assert select(requested, ["gpqa", "mmlu"]) == ["mmlu", "gpqa"]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("mmul", "evaluate_tasks: no task 'mmul'; nearest: 'mmlu'"),
        ([], "evaluate_tasks is missing: name one or more tasks, such as -e evaluate_tasks=made; known: gpqa, mmlu"),
        (" , ", "evaluate_tasks is missing"),
    ],
)
def test_an_unknown_task_gets_the_nearest_name(requested, expected):
    with pytest.raises(EvaluationError) as caught:
        select(requested, ["gpqa", "mmlu"])
    assert str(caught.value).startswith(expected)


def test_a_request_is_greedy_unless_the_site_says_otherwise():
    task = parse_task("t", GOOD, "t.yml")
    assert request_of(task, {}) == {"max_tokens": 10, "temperature": 0}
    assert request_of(task, {"max_tokens": "20", "reasoning_effort": "low"}) == {
        "max_tokens": 20, "temperature": 0, "reasoning_effort": "low",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model": "x"}, "evaluate_request: model is set by the evaluation; leave it out"),
        ({"max_tokens": 0}, "evaluate_request: max_tokens: found 0, expected a whole number above 0"),
        ({"max_tokens": True}, "max_tokens: found true"),
        ({"max_tokens": "many"}, "max_tokens: found 'many'"),
    ],
)
def test_a_wrong_request_is_refused(given, expected):
    with pytest.raises(EvaluationError) as caught:
        request_of(parse_task("t", GOOD, "t.yml"), given)
    assert expected in str(caught.value)
