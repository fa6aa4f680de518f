# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation import files
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.plan import (
    Request,
    instances_of,
    pending,
    plan_tasks,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.results import make_result, render
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import EvaluationError

from tests.fakes.evaluations import answers

STATE = "a" * 16


@pytest.fixture
def request_(tmp_path):
    return Request("made", [], {}, {}, 100, str(tmp_path / "after"), "")


def keep(directory, task, host="gpu-1", **changes):
    data = answers(task["task"], [True] * task["samples"], **changes)
    result = make_result(data, {"instance": "chat", **task}, host, "")
    files.write(files.result_path(directory, host, "chat", task["task"]), render(result))


def test_the_questions_are_prepared_and_the_settings_noted(request_):
    (task,) = plan_tasks(request_)
    lines = [json.loads(line) for line in Path(task["prepared"]).read_text().splitlines()]
    assert len(lines) == task["samples"] == task["limit"] == 100
    assert {tuple(line) for line in lines} == {("id", "expected", "prompt")}
    assert task["request"] == {"max_tokens": 64, "temperature": 0} and task["kind"] == "word"
    assert plan_tasks(request_) == [task]


def test_asking_for_as_many_questions_as_there_are_is_asking_for_all(request_):
    assert {plan_tasks(replace(request_, limit=limit))[0]["limit"] for limit in (0, 1000, 2000)} == {0}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"limit": -1}, "evaluate_samples: found -1, expected 0 (all questions) or more"),
        ({"data": {"mad": {}}}, "evaluate_data: no task 'mad'; nearest: 'made'"),
        ({"tasks": "gpqa"}, "evaluate_data: gpqa is missing"),
        ({"data": {"made": {"file": "/missing", "sha256": "0" * 64}}}, "evaluate_data: made: /missing: No such file"),
    ],
)
def test_what_is_wrong_before_anything_is_asked(request_, change, expected):
    with pytest.raises(EvaluationError) as caught:
        plan_tasks(replace(request_, **change))
    assert expected in str(caught.value)


GPQA = "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n" + "".join(
    f"Which {n}?,right {n},x,y,z\n" for n in range(20)
)


@pytest.fixture
def gpqa(request_, tmp_path):
    (tmp_path / "gpqa.csv").write_text(GPQA)
    data = {"gpqa": {"file": str(tmp_path / "gpqa.csv"), "sha256": files.sha256_of(str(tmp_path / "gpqa.csv"))}}
    return replace(request_, tasks="gpqa", data=data, limit=5, tool="gpt-oss")


@pytest.mark.parametrize("tool", ["gpt-oss", "aisbench"])
def test_a_tool_with_prompts_of_its_own_gets_the_same_questions_without_ours(gpqa, tool):
    (task,) = plan_tasks(replace(gpqa, tool=tool))
    rows = [json.loads(line) for line in Path(task["prepared"]).read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("id", "expected", "question", "choices")}
    assert all(row["choices"] == [f"right {row['question'][6:-1]}", "x", "y", "z"] for row in rows)
    (ours,) = plan_tasks(replace(gpqa, tool="lm-eval"))
    assert [json.loads(line)["id"] for line in Path(ours["prepared"]).read_text().splitlines()] == [
        row["id"] for row in rows
    ]
    assert task["tool"].startswith({"gpt-oss": "gpt-oss 0", "aisbench": "AISBench 3"}[tool])


def test_runs_of_two_tools_are_not_compared(gpqa):
    (before,) = plan_tasks(replace(gpqa, tool="lm-eval"))
    keep(gpqa.directory, before)
    (now,) = plan_tasks(gpqa)
    with pytest.raises(
        EvaluationError, match=r"holds another run: tool: found 'lm-eval 0.4.13', this run has 'gpt-oss"
    ):
        pending([now], {"chat": STATE}, "gpu-1", gpqa.directory, "")
    with pytest.raises(EvaluationError, match=r"gpqa: evaluate_tool: found 'gpt-oss 0.0.9', but .* 'lm-eval 0.4.13'"):
        pending([now], {"chat": STATE}, "gpu-1", f"{gpqa.directory}-2", gpqa.directory)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tool": "gpt-os"}, "evaluate_tool: found 'gpt-os'; nearest: 'gpt-oss'"),
        (
            {"tasks": "made"},
            "evaluate_tasks: gpt-oss has no task 'made', expected gpqa or aime25; lm-eval, the default",
        ),
    ],
)
def test_a_tool_or_a_task_that_is_not_there(gpqa, change, expected):
    with pytest.raises(EvaluationError) as caught:
        plan_tasks(replace(gpqa, data={}, **change))
    assert str(caught.value).startswith(expected)


def test_what_has_a_result_is_not_asked_again(request_):
    tasks = plan_tasks(request_)
    (item,) = pending(tasks, {"chat": STATE}, "gpu-1", request_.directory, request_.compare)
    assert (item["instance"], item["path"]) == ("chat", f"{request_.directory}/gpu-1/chat/made.json")
    keep(request_.directory, tasks[0])
    assert pending(tasks, {"chat": STATE}, "gpu-1", request_.directory, request_.compare) == []
    assert len(pending(tasks, {"chat": STATE}, "gpu-2", request_.directory, request_.compare)) == 1


def test_a_result_of_another_state_or_of_other_settings_is_not_taken_for_this_one(request_):
    (task,) = plan_tasks(request_)
    keep(request_.directory, task)
    with pytest.raises(EvaluationError, match=r"holds another run: state: found 'aaaaaaaaaaaaaaaa', this run has 'b'"):
        pending([task], {"chat": "b"}, "gpu-1", request_.directory, request_.compare)
    other = replace(request_, request={"reasoning_effort": "low"})
    with pytest.raises(EvaluationError, match=r"holds another run: request: .*set evaluate_dir to another directory"):
        pending(plan_tasks(other), {"chat": STATE}, "gpu-1", other.directory, other.compare)


def test_a_run_that_cannot_be_compared_is_refused_before_anything_is_asked(request_, tmp_path):
    compared = replace(request_, compare=str(tmp_path / "before"))
    with pytest.raises(EvaluationError, match=r"evaluate_compare: .*before is not a directory on the controller"):
        plan_tasks(compared)
    (tmp_path / "before").mkdir()
    (task,) = plan_tasks(compared)
    with pytest.raises(EvaluationError, match=r"evaluate_compare: .*made.json is not there"):
        pending([task], {"chat": STATE}, "gpu-1", compared.directory, compared.compare)
    keep(compared.compare, {**task, "request": {"max_tokens": 32}}, state="b" * 16)
    with pytest.raises(EvaluationError, match=r"made: evaluate_request: found .* but the run to compare with has"):
        pending([task], {"chat": STATE}, "gpu-1", compared.directory, compared.compare)
    keep(compared.compare, task, state="b" * 16)
    assert len(pending([task], {"chat": STATE}, "gpu-1", compared.directory, compared.compare)) == 1


def status(**changes):
    return {"installed": True, "up": True, "stale": False, "digest": STATE, **changes}


def test_the_instances_of_a_host():
    statuses = {"chat": status(), "embed": status(digest="b"), "gone": status(installed=False)}
    assert instances_of([], statuses, "h") == {"chat": STATE, "embed": "b"}
    assert instances_of(["embed"], statuses, "h") == {"embed": "b"}


@pytest.mark.parametrize(
    ("requested", "statuses", "expected"),
    [
        (["chta"], {"chat": status()}, "evaluate_instances: h has no instance 'chta'; nearest: 'chat'"),
        (
            [],
            {"chat": status(installed=False)},
            "h: no instance is installed; run site.yml first, or limit the run with -l",
        ),
        ([], {"chat": status(up=False)}, "h: instance chat does not run; run site.yml first"),
        ([], {"chat": status(stale=True)}, "h: instance chat runs with other files than those installed"),
    ],
)
def test_an_instance_that_cannot_be_asked(requested, statuses, expected):
    with pytest.raises(EvaluationError) as caught:
        instances_of(requested, statuses, "h")
    assert expected in str(caught.value)
