# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever lm-eval writes, and the instance answers it, it is read or refused in one sentence."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.module_utils.evaluation.lm_eval import (
    OutputError,
    read_output,
    reason_of,
)

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
EXPECTED = {"1": "B", "2": "B"}
LOG = (
    "2026-11-25:13:00:00 INFO [evaluator] Running generate_until requests\n"
    'WARNING API request failed! Status code: 401, Response text: {"error": "no key"}. Retrying...\n'
    "Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'choices'\n"
)


def test_whatever_lm_eval_writes_it_is_read_or_refused_in_one_sentence():
    read = refused = 0
    for label, choose in cases("lm-eval", 400):
        with told_apart(label):
            samples = mutated(choose, SAMPLES)
            samples = samples if isinstance(samples, list) else [samples]
            lines = [json.dumps(sample, default=lambda _value: None, skipkeys=True) for sample in samples]
            lines = [mutated_text(choose, line) if choose.random() < 0.1 else line for line in lines]
            try:
                found = within(60, lambda lines=lines: read_output(lines, EXPECTED))
                assert [item["id"] for item in found] == list(EXPECTED)
                assert all(isinstance(item["correct"], bool) for item in found)
                read += 1
            except OutputError as exc:
                assert_presentable(str(exc), 1000)
                refused += 1
    assert_enough(read, 20, "read")
    assert_enough(refused, 20, "refused")


def test_whatever_the_log_holds_the_reason_is_one_sentence():
    for label, choose in cases("lm-eval-log", 400):
        with told_apart(label):
            text = mutated_text(choose, LOG)
            assert_presentable(within(60, lambda text=text: reason_of(text)), 500)
