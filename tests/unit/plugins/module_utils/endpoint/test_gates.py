# SPDX-License-Identifier: GPL-3.0-or-later
"""What figures mean beside those of an earlier run."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.answers import BadAnswerError
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.gates import (
    Limits,
    MeasuredLoad,
    Prompt,
    Sample,
    compared,
    figures_of,
    judge_prompt,
    load_of,
    message,
    prompts_of,
    sample_of,
)

BEFORE = {
    "tokens_per_second": 100.0,
    "first_token_s": 0.2,
    "first_token_p90_s": 0.3,
    "requests": 8,
    "seconds": 5.12,
    "tokens": 512,
    "prompts": 8,
    "streams": 4,
    "max_tokens": 64,
}
LIMITS = Limits(0.8, 0.8, 0.05)


def judged(limits=LIMITS, before=None, **now):
    known = BEFORE if before is None else before
    return {verdict.name: verdict.ok for verdict in compared({**BEFORE, **now}, known, limits)}


@pytest.mark.parametrize(
    ("now", "throughput", "first_token"),
    [
        ({}, True, True),
        ({"tokens_per_second": 80.0}, True, True),
        ({"tokens_per_second": 79.9}, False, True),
        ({"tokens_per_second": 500.0, "first_token_s": 0.01}, True, True),
        # 0.2 / 0.25 is 0.8 exactly, and 0.05 s more.
        ({"first_token_s": 0.25}, True, True),
        ({"first_token_s": 0.251}, True, False),
        ({"tokens_per_second": 33.3, "first_token_s": 0.6}, False, False),
    ],
)
def test_a_share_of_what_was_before(now, throughput, first_token):
    assert judged(**now) == {"throughput": throughput, "first_token": first_token}


def test_either_share_or_slack_is_enough_for_the_first_token():
    small = {**BEFORE, "first_token_s": 0.01}
    assert judged(before=small, first_token_s=0.059)["first_token"]
    assert not judged(before=small, first_token_s=0.061)["first_token"]
    large = {**BEFORE, "first_token_s": 10.0}
    assert judged(before=large, first_token_s=12.4)["first_token"]
    assert not judged(before=large, first_token_s=12.6)["first_token"]
    assert not judged(Limits(0.8, 1, 0), first_token_s=0.2001)["first_token"]


def test_a_share_of_zero_takes_anything():
    assert all(judged(Limits(0, 0, 0), tokens_per_second=0.01, first_token_s=900.0).values())


@pytest.mark.parametrize(
    "before",
    [
        {**BEFORE, "streams": 8},
        {**BEFORE, "max_tokens": 128},
        {key: value for key, value in BEFORE.items() if key != "prompts"},
        {**BEFORE, "tokens_per_second": 0},
        {**BEFORE, "first_token_s": "fast"},
        {**BEFORE, "tokens_per_second": float("nan")},
        {"drain_s": 3},
    ],
)
def test_what_cannot_be_compared_says_so_and_passes(before):
    (verdict,) = compared({**BEFORE, "tokens_per_second": 1.0}, before, LIMITS)
    assert verdict.ok and verdict.name == "baseline" and verdict.detail.startswith("not compared: ")


def test_nothing_before_or_nothing_measured_is_no_verdict():
    assert compared(BEFORE, {}, LIMITS) == [] and compared({}, BEFORE, LIMITS) == []


def test_shorter_answers_are_told_beside_the_throughput():
    verdict = compared({**BEFORE, "tokens": 80, "tokens_per_second": 50.0}, BEFORE, LIMITS)[0]
    assert verdict.detail == (
        "50 tokens/s, before 100: 0.50 of it, expected at least 0.8 (an answer had 10 tokens, before 64)"
    )


def chat_answer(text):
    message = {"role": "assistant", "content": text}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
    return Reply(200, ((0.1, json.dumps(answer).encode()),), 0.1)


def test_an_answer_to_a_fixed_prompt_contains_what_is_expected():
    prompt = Prompt("What is the capital?", ("Paris", "paris"), "", 16)
    assert judge_prompt(1, prompt, chat_answer("It is paris.")).ok
    wrong = judge_prompt(1, prompt, chat_answer("It is Rome."))
    assert not wrong.ok and "answered 'It is Rome.', expected it to contain 'Paris' or 'paris'" in wrong.detail


def test_a_stream_without_a_token_is_no_sample():
    chunk = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0}}
    texts = [json.dumps(chunk), json.dumps(usage), "[DONE]"]
    lines = [line for text in texts for line in (f"data: {text}".encode(), b"")]
    with pytest.raises(BadAnswerError, match="held no token"):
        sample_of(Reply(200, tuple((0.1, line) for line in lines), 0.1))


def test_answers_that_may_end_are_not_compared_with_those_that_may_not():
    assert judged(ignore_eos=1) == {"baseline": True}


def test_figures():
    samples = [Sample(first / 10, 10) for first in range(10, 0, -1)]
    figures = figures_of(samples, 4.0, MeasuredLoad(4, 10, 64))
    assert figures == {
        "tokens_per_second": 25.0, "first_token_s": 0.55, "first_token_p90_s": 0.9, "requests": 10, "seconds": 4.0,
        "tokens": 100, "prompts": 10, "streams": 4, "max_tokens": 64,
    }  # fmt: skip
    assert figures_of(samples[:1], 4.0, MeasuredLoad(1, 1, 64))["first_token_p90_s"] == 1.0
    assert figures_of([], 0.0, MeasuredLoad(1, 1, 64)) == {}


def test_options_that_are_left_out_have_defaults():
    assert load_of(None) == load_of({}) == MeasuredLoad(4, 8, 64) and load_of({"prompts": "0"}) == MeasuredLoad(
        4, 0, 64
    )
    (prompt,) = prompts_of([{"prompt": "6 times 7?", "expect": 42}])
    assert prompt.expect == ("42",) and prompt.max_tokens == 256 and prompt.system == ""


def test_no_gate_at_all_is_told():
    assert message("Instance chat", [], {}, {}) == "Instance chat: no gate was requested"
