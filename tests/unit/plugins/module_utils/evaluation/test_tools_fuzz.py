# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a tool writes, and the instance answers it, it is read or refused in one sentence."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tool import OutputError
from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.tools import TOOLS

from tests.fakes.fuzz import assert_enough, assert_presentable, cases, mutated, mutated_text, told_apart, within

SAMPLES = [
    {
        "doc": {"id": name, "prompt": "?", "expected": "B"},
        "target": "B",
        "resps": [["Answer: B"]],
        "filtered_resps": ["B"],
        "exact_match": 1.0,
    }
    for name in ("1", "2")
]
ANSWERS = [{"id": name, "expected": "B", "answer": "B", "score": 1.0, "response": "B"} for name in ("1", "2")]
DETAILS = {
    "accuracy": 100.0,
    "details": {
        name: {"origin_prediction": "Answer: B", "predictions": ["B"], "references": ["B"], "correct": [True]}
        for name in ("0", "1")
    },
}
OUTPUT = {"lm-eval": SAMPLES, "gpt-oss": ANSWERS, "aisbench": [DETAILS]}
QUESTIONS = [{"id": "1", "expected": "B"}, {"id": "2", "expected": "B"}]
LOG = (
    "2026-11-25:13:00:00 INFO [evaluator] Running generate_until requests\n"
    'WARNING API request failed! Status code: 401, Response text: {"error": "no key"}. Retrying...\n'
    "[2026-11-25] [ais_bench] [\x1b[31mERROR\x1b[0m] x. failed reasons: {'Cannot connect': 1} | Visit https://x\n"
    "Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'choices'\n"
)


@pytest.mark.parametrize("name", TOOLS)
def test_whatever_a_tool_writes_it_is_read_or_refused_in_one_sentence(name):
    read = refused = 0
    for label, choose in cases(name, 400):
        with told_apart(label):
            samples = mutated(choose, OUTPUT[name])
            samples = samples if isinstance(samples, list) else [samples]
            lines = [json.dumps(sample, default=lambda _value: None, skipkeys=True) for sample in samples]
            lines = [mutated_text(choose, line) if choose.random() < 0.1 else line for line in lines]
            try:
                found = within(60, lambda lines=lines: TOOLS[name].read(lines, QUESTIONS))
                assert [item["id"] for item in found] == ["1", "2"]
                assert all(isinstance(item["correct"], bool) for item in found)
                read += 1
            except OutputError as exc:
                assert_presentable(str(exc), 1000)
                refused += 1
    assert_enough(read, 20, "read")
    assert_enough(refused, 20, "refused")


@pytest.mark.parametrize("name", TOOLS)
def test_whatever_the_log_holds_the_reason_is_one_sentence(name):
    for label, choose in cases(f"{name}-log", 400):
        with told_apart(label):
            text = mutated_text(choose, LOG)
            assert_presentable(within(60, lambda text=text: TOOLS[name].reason(text)), 500)
