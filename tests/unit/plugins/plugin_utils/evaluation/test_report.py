# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.compare import Comparison, mcnemar
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.report import report

RESULT = {"instance": "chat", "task": "mmlu", "samples": 1000, "score": 0.7, "unreadable": 3}


def test_a_score_has_its_interval_and_what_could_not_be_read():
    lines = report([RESULT], {}).splitlines()
    assert lines[0].split() == ["instance", "task", "questions", "right", "95", "%", "unreadable"]
    assert lines[2].split() == ["chat", "mmlu", "1000", "70.0", "%", "67.1", "to", "72.8", "3"]
    assert len(lines) == 3


def test_a_comparison_has_what_changed_and_the_verdict():
    worse = Comparison(1000, 0.75, 0.7, 80, 30, mcnemar(80, 30))
    lines = report([RESULT], {("chat", "mmlu"): worse}).splitlines()
    assert lines[2].split()[9:] == ["75.0", "%", "80", "30", "0.0000", "worse"]
    assert len(lines) == 3


def test_where_no_difference_is_found_it_says_what_could_have_been_found():
    none = Comparison(1000, 0.71, 0.7, 60, 50, mcnemar(60, 50))
    text = report([RESULT], {("chat", "mmlu"): none})
    assert "no difference found" in text
    assert text.splitlines()[-1] == "mmlu: with these 1000 questions a loss of 5 points is found in 98 % of runs"


@pytest.mark.parametrize(("samples", "lost", "gained"), [(4, 1, 2), (100, 50, 50)])
def test_nearly_every_answer_can_change(samples, lost, gained):
    compared = Comparison(samples, 0.5, 0.5, lost, gained, mcnemar(lost, gained))
    last = report([{**RESULT, "samples": samples}], {("chat", "mmlu"): compared}).splitlines()[-1]
    assert last.startswith(f"mmlu: with these {samples} questions a loss of 5 points is found in ")


def test_the_made_questions_say_that_they_prove_nothing_about_a_model():
    assert (
        report([{**RESULT, "task": "made"}], {}).splitlines()[-1].startswith("made: the questions are made by a script")
    )
