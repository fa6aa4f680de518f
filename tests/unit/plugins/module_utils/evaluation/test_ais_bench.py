# SPDX-License-Identifier: GPL-3.0-or-later
"""What AISBench gets, and what is read of the output that AISBench 3.1.20260630 wrote on made questions."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.ais_bench import (
    TOOL,
    data_file,
    read_output,
    reason_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import OutputError, Run

RECORDED = Path(__file__).resolve().parents[4] / "fixtures/evaluation"
REQUEST = {"max_tokens": 64, "temperature": 0}
CHATS = Run("gpqa", "choice", "/w/samples.jsonl", "/w", "http://127.0.0.1:8000", "a'b", REQUEST, 8, 60)
QUESTIONS = [{"id": f"q{n}", "question": f"Which, {n}?", "choices": ["right", "x", "y", "z"], "expected": "A"}
             for n in range(6)]  # fmt: skip


def constants(text):
    """Return the literal values that a Python file gives to names and calls."""
    return [ast.literal_eval(node) for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Constant, ast.Dict))]


def test_the_configuration_names_the_instance_and_has_no_key():
    files = TOOL.files(CHATS, QUESTIONS)
    assert sorted(files) == ["data/gpqa_diamond.csv", "python/instance_chat.py", "run.py"]
    found = constants(files["run.py"])
    (options,) = [value for value in found if isinstance(value, dict) and "attr" in value]
    assert (options["host_ip"], options["host_port"], options["model"]) == ("127.0.0.1", 8000, "a'b")
    assert (options["max_out_len"], options["batch_size"]) == (64, 8)
    assert options["generation_kwargs"] == {"temperature": 0} and "/w/data/" in found
    assert "gpqa.gpqa_gen_0_shot_cot_chat_prompt import gpqa_datasets as datasets" in files["run.py"]
    assert "api_key" not in files["run.py"] and 'os.environ["OPENAI_API_KEY"]' in files["python/instance_chat.py"]
    ast.parse(files["python/instance_chat.py"])


def test_gpqa_lies_in_the_columns_that_aisbench_reads_by_position():
    name, text = data_file("gpqa", QUESTIONS)
    rows = list(csv.reader(text.splitlines()))
    assert name == "gpqa_diamond.csv" and rows[0][7] == "Question"
    assert rows[1][7:12] == ["Which, 0?", "right", "x", "y", "z"] and len(rows) == 7


def test_aime_is_a_file_of_questions_and_answers():
    name, text = data_file("aime25", [{"id": "1", "question": "1 and 2?", "choices": [], "expected": "3"}])
    assert name == "aime2025.jsonl" and json.loads(text) == {"question": "1 and 2?", "answer": "3"}
    assert "/data/aime2025.jsonl'" in TOOL.files(Run(**{**vars(CHATS), "task": "aime25"}), QUESTIONS)["run.py"]


@pytest.mark.parametrize(
    ("task", "correct", "third"),
    [("gpqa", [True, True, False, True, False, True], ("B", "A", "Answer: A")),
     ("aime25", [True, True, True, False, True], ("9", "9", "So \\boxed{9}"))],
)  # fmt: skip
def test_recorded_answers_in_the_order_of_the_questions(task, correct, third):
    with open(RECORDED / f"aisbench-{task}.json", encoding="utf-8") as file:
        items = read_output(file, QUESTIONS[: len(correct)])
    assert [item["correct"] for item in items] == correct
    assert [item["id"] for item in items] == [f"q{n}" for n in range(len(correct))]
    assert (items[2]["expected"], items[2]["answer"], items[2]["response"]) == third
    if task == "gpqa":
        assert (items[4]["answer"], items[4]["response"]) == ("[no answer]", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"details": {"0": {}}}', "AISBench judged 1 of the answers, expected 6"),
        ("{}", "AISBench's details are not as expected: KeyError"),
        ('{"details": {"x": {}}}', "AISBench judged 0 of the answers, expected 6"),
        ('{"details": [Infinity]}', "AISBench judged 0 of the answers, expected 6"),
        ('{"details": 3}', "AISBench's details are not as expected: TypeError"),
        ("[", "AISBench's details are not as expected: JSONDecodeError"),
    ],
)
def test_incomplete_output_is_no_result(text, expected):
    with pytest.raises(OutputError) as caught:
        read_output([text], QUESTIONS)
    assert str(caught.value).startswith(expected)


def test_an_answer_that_is_neither_right_nor_wrong_is_no_result():
    data = json.loads((RECORDED / "aisbench-gpqa.json").read_text())
    data["details"]["3"]["correct"] = [None]
    with pytest.raises(OutputError, match=r"not as expected: KeyError\(None\)"):
        read_output([json.dumps(data)], QUESTIONS)


def test_the_reason_of_a_recorded_failure():
    reason = reason_of((RECORDED / "aisbench-unreachable.out").read_text())
    assert "Cannot connect to host 127.0.0.1:18799" in reason and "\x1b" not in reason and "Visit" not in reason
    assert reason_of("x\n\x1b[31mModuleNotFoundError: no y\x1b[0m\n") == "ModuleNotFoundError: no y"
    assert reason_of("") == "it wrote nothing"
