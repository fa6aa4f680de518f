# SPDX-License-Identifier: GPL-3.0-or-later
"""What the program of gpt_oss.evals gets, and what is read of the output of gpt-oss 0.0.9 on made questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.gpt_oss import TOOL, read_output
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import OutputError, Run

RECORDED = Path(__file__).resolve().parents[4] / "fixtures/evaluation"


def test_the_settings_name_the_instance_and_the_place_of_the_answers():
    run = Run("gpqa", "choice", "/w/s.jsonl", "/w", "http://127.0.0.1:8000", "m", {"max_tokens": 64}, 8, 60)
    (text,) = TOOL.files(run, []).values()
    found = json.loads(text)
    assert (found["url"], found["request"], found["concurrency"]) == ("http://127.0.0.1:8000", {"max_tokens": 64}, 8)
    assert found["output"] == f"/w/out/{TOOL.output('gpqa')}"
    assert TOOL.arguments("/w") == ["/w/gpt_oss_evals.py", "/w/run.json"]


def test_recorded_answers():
    lines = (RECORDED / "gpt-oss-gpqa.jsonl").read_text().splitlines()
    items = read_output(lines, [{"id": f"q{n}"} for n in range(6)])
    assert [item["correct"] for item in items] == [True, True, False, True, False, True]
    assert (items[2]["expected"], items[2]["answer"]) == ("C", "A") and items[4]["answer"] == "[no answer]"
    lines = (RECORDED / "gpt-oss-aime25.jsonl").read_text().splitlines()
    items = read_output(lines, [{"id": str(n)} for n in range(1, 6)])
    assert [item["answer"] for item in items] == ["5", "7", "9", "12", "[no answer]"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "gpt_oss.evals answered 0 questions, expected the 1 that were asked"),
        (["{"], "line 1 of the answers of gpt_oss.evals is not as expected: JSONDecodeError"),
        (['{"id": "1", "expected": "A", "answer": "A", "score": 0.5, "response": ""}'], "line 1 of the answers"),
        (['{"id": "2", "expected": "A", "answer": "A", "score": 1, "response": ""}'], "gpt_oss.evals answered 1"),
    ],
)
def test_incomplete_output_is_no_result(lines, expected):
    with pytest.raises(OutputError) as caught:
        read_output(lines, [{"id": "1"}])
    assert str(caught.value).startswith(expected)
