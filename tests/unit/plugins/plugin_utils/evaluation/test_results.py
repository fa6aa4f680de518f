# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.results import (
    add_scores,
    check_answers,
    check_result,
    interval,
    make_result,
    render,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import EvaluationError

from tests.fakes.evaluations import SETTINGS, answers

EVIDENCE = {
    "status": "measured",
    "model": "openai/gpt-oss-20b",
    "release": "0.32.0",
    "scores": {"gpqa": {"score": 0.5}},
}


def made(task="mmlu", correct=(True, True, False, True), limit=0, **changes):
    own = {key: changes.pop(key) for key in ("instance", "tool") if key in changes}
    settings = {**SETTINGS, **own, "task": task, "samples": len(correct), "limit": limit}
    return make_result(answers(task, list(correct), **changes), settings, "gpu-1", "2026-11-23T12:00:00Z")


def test_a_result_has_score_settings_and_every_answer():
    result = made()
    assert (result["score"], result["samples"], result["host"], result["instance"]) == (0.75, 4, "gpu-1", "chat")
    assert [item["correct"] for item in result["items"]] == [True, True, False, True]
    assert {key: result[key] for key in SETTINGS} == {**SETTINGS}


def test_a_host_says_nothing_of_what_was_asked_and_of_whom():
    # It named host, task and tool of its result: that of another task, or of another host.
    lies = {
        "host": "gpu-2",
        "task": "gpqa",
        "tool": "x",
        "instance": "code",
        "score": 1,
        "date": "",
        "format": 7,
        "x": 1,
    }
    result = made(correct=(True, False))
    settings = {**SETTINGS, "task": "mmlu", "samples": 2, "limit": 0}
    assert make_result({**answers("mmlu", [True, False]), **lies}, settings, "gpu-1", result["date"]) == result
    assert "x" not in result and result["tool"] == SETTINGS["tool"] and result["task"] == "mmlu"


def test_what_a_host_could_not_read_is_counted_here():
    found = answers("mmlu", [True, False], unreadable=0)
    found["items"][1]["answer"] = "[no answer]"
    settings = {**SETTINGS, "task": "mmlu", "samples": 2}
    assert make_result(found, settings, "gpu-1", "")["unreadable"] == 1


ITEM = {"id": "0", "expected": "A", "answer": "A", "correct": True, "response": "A"}


@pytest.mark.parametrize("data", [
    None, [], {}, "ab", [[1, 2]],
    *({"items": items} for items in (None, 5, {"a": 1}, [1], [{}], [ITEM, ITEM], [{**ITEM, "id": ["x"]}],
                                     [{**ITEM, "correct": 1}], [{**ITEM, "answer": None}])),
    *({name: value} for name in ("plan", "model", "state") for value in (None, 3, ["x"])),
])  # fmt: skip
def test_odd_answers_are_one_error_that_names_the_file(data):
    found = {**answers("mmlu", [True]), **data} if isinstance(data, dict) and data else data
    with pytest.raises(EvaluationError, match=r"^/r/a\.gz: "):
        check_answers(found, "/r/a.gz")


def test_answers_of_the_expected_kinds_are_taken_as_they_are():
    found = answers("mmlu", [True, False])
    checked = check_answers({**found, "x": 1}, "f")
    assert checked == {key: found[key] for key in ("model", "state", "plan", "items")}


@pytest.mark.parametrize("change", [{"plan": 3}, {"instance": ["x"]}, {"tool": 5}, {"task": 5}, {"unreadable": {}}])
def test_a_result_of_other_kinds_is_one_error_that_names_the_file(change):
    with pytest.raises(EvaluationError, match=r"^f: "):
        check_result({**made(), **change}, "f")


def test_the_text_has_an_answer_on_each_line_and_reads_back_the_same():
    text = render(made())
    assert json.loads(text) == made()
    assert sum('"correct": ' in line for line in text.splitlines()) == 4


def test_an_answer_too_few_is_no_result():
    with pytest.raises(EvaluationError, match=r"gpu-1: mmlu: found 4 answers, expected 5"):
        make_result(answers("mmlu", [True] * 4), {**SETTINGS, "task": "mmlu", "samples": 5}, "gpu-1", "")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format": 2}, "f: is not a result of evaluate.yml in format 1"),
        ({"score": 0.8}, "f: 3 of 4 answers are right, but the score is 0.8 of 4; the file was changed by hand"),
        ({"samples": 5}, "but the score is 0.75 of 5"),
        ({"items": [], "samples": 0}, "0 of 0 answers"),
    ],
)
def test_a_changed_file_is_no_result(change, expected):
    with pytest.raises(EvaluationError) as caught:
        check_result({**made(), **change}, "f")
    assert expected in str(caught.value)


def test_a_file_of_something_else_is_no_result():
    with pytest.raises(EvaluationError, match=r"f: is not a result"):
        check_result([], "f")
    for items in ([{"id": "1"}], [{"correct": True}], ["1"]):
        with pytest.raises(EvaluationError, match=r"f: items: an answer has no id or correct"):
            check_result({**made(), "items": items}, "f")
    with pytest.raises(EvaluationError, match=r"f: state is missing"):
        check_result({key: value for key, value in made().items() if key != "state"}, "f")


@pytest.mark.parametrize(
    ("score", "samples", "low", "high"), [(0.5, 100, 0.404, 0.596), (0, 30, 0, 0.114), (1, 30, 0.886, 1)]
)
def test_the_interval_is_wilsons(score, samples, low, high):
    assert interval(score, samples) == pytest.approx((low, high), abs=0.001)


def test_scores_are_added_to_those_of_other_tasks():
    assert add_scores(EVIDENCE, [made(), made("aime25", [False])]) == {
        **EVIDENCE,
        "scores": {"aime25": {"score": 0, "samples": 1}, "gpqa": {"score": 0.5}, "mmlu": {"score": 0.75, "samples": 4}},
    }
    assert EVIDENCE["scores"] == {"gpqa": {"score": 0.5}}


def test_scores_of_another_tool_have_its_name():
    scores = add_scores(EVIDENCE, [made("gpqa", [True, False], tool="gpt-oss 0.0.9")])["scores"]
    assert scores == {"gpqa": {"score": 0.5}, "gpqa (gpt-oss 0.0.9)": {"score": 0.5, "samples": 2}}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (made(plan={"model": "other", "vllm_version": "0.32.0"}), "mmlu: model: the evaluated instance has 'other'"),
        (made(plan={"model": "openai/gpt-oss-20b", "vllm_version": "0.33.0"}), "release: the evaluated instance has "),
        (made(plan={}), "mmlu: release: the evaluated instance has nothing, the evidence '0.32.0'"),
        (made(limit=4), "mmlu: only 4 chosen questions were asked"),
    ],
)  # fmt: skip
def test_scores_of_something_else_are_refused(result, expected):
    with pytest.raises(EvaluationError) as caught:
        add_scores(EVIDENCE, [result])
    assert expected in str(caught.value)
