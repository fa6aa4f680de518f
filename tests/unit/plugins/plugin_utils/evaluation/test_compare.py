# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import random

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.compare import (
    Comparison,
    compare,
    mcnemar,
    power,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import EvaluationError

SIZE = 1000


def result(correct, **changes):
    settings = {
        "task": "t",
        "tool": "lm-eval 0.4.13",
        "definition_sha256": "d",
        "data_sha256": "f",
        "limit": 0,
        "request": {"temperature": 0},
    }
    return {**settings, "items": [{"id": str(n), "correct": right} for n, right in enumerate(correct)], **changes}


def runs(seed, loss, gain, score=0.7):
    """Return the answers of two runs: of all questions ``loss`` become wrong and ``gain`` right."""
    source = random.Random(seed)
    before = [source.random() < score for _question in range(SIZE)]
    now = [(source.random() >= loss / score) if right else (source.random() < gain / (1 - score)) for right in before]
    return before, now


@pytest.mark.parametrize("total", range(1, 40))
def test_the_p_is_that_of_the_binomial_distribution(total):
    for lost in range(total + 1):
        tail = sum(math.comb(total, each) for each in range(min(lost, total - lost) + 1)) / 2**total
        assert mcnemar(lost, total - lost) == pytest.approx(min(1, 2 * tail))


def test_known_values():
    assert mcnemar(0, 0) == 1
    assert mcnemar(5, 0) == 0.0625
    assert mcnemar(6, 0) == 0.03125
    # Far more than a float can hold.
    assert mcnemar(3000, 3000) == 1 and mcnemar(4000, 2000) < 1e-100


def test_a_planted_loss_of_5_points_is_found_in_1000_questions():
    found = [compare(result(before), result(now)) for before, now in (runs(seed, 0.10, 0.05) for seed in range(40))]
    assert sum(each.verdict == "worse" for each in found) >= 36
    assert sum(each.verdict == "better" for each in found) == 0
    assert sum(each.now - each.before for each in found) / 40 == pytest.approx(-0.05, abs=0.01)


def test_two_runs_of_the_same_model_are_rarely_called_worse():
    found = [compare(result(before), result(now)) for before, now in (runs(seed, 0.05, 0.05) for seed in range(200))]
    # 2.5 % are expected at most; of 200 that is 5.
    assert sum(each.verdict == "worse" for each in found) <= 9
    assert sum(each.verdict == "no difference found" for each in found) >= 182


def test_the_stated_power_is_that_of_the_test():
    runs_of = [compare(result(before), result(now)) for before, now in (runs(seed, 0.10, 0.05) for seed in range(300))]
    assert sum(each.verdict == "worse" for each in runs_of) / 300 == pytest.approx(power(SIZE, 0.10, 0.05), abs=0.03)


# The table of docs/operate/evaluate.md.
@pytest.mark.parametrize(
    ("samples", "found"),
    [(30, (1, 2, 3)), (198, (59, 37, 25)), (500, (96, 80, 58)), (1000, (100, 98, 88)), (2000, (100, 100, 99))],
)
def test_the_power_that_the_docs_state(samples, found):
    shares = tuple(round(100 * power(samples, 0.05 + gain, gain)) for gain in (0.02, 0.05, 0.10))
    assert shares == found


def test_nothing_that_changes_is_nothing_to_find():
    assert power(100, 0, 0) == 0
    assert power(100, 1, 0) == pytest.approx(1)


def test_shares_of_more_than_all_questions_are_refused():
    assert power(100, 0.55, 0.45) > 0
    with pytest.raises(ValueError, match=r"loss 0.6 and gain 0.5 are more than all questions"):
        power(100, 0.6, 0.5)


def test_the_verdict_needs_a_significant_difference():
    assert Comparison(100, 0.5, 0.45, 5, 0, mcnemar(5, 0)).verdict == "no difference found"
    assert Comparison(100, 0.5, 0.44, 6, 0, mcnemar(6, 0)).verdict == "worse"
    assert Comparison(100, 0.5, 0.56, 0, 6, mcnemar(0, 6)).verdict == "better"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("definition_sha256", "definition_sha256"),
        ("data_sha256", "sha256 of evaluate_data"),
        ("limit", "evaluate_samples"),
        ("request", "evaluate_request"),
    ],
)
def test_runs_with_other_settings_are_not_compared(key, shown):
    with pytest.raises(EvaluationError, match=rf"t: {shown}: found 'other', but the run to compare with has "):
        compare(result([True]), result([True], **{key: "other"}))


def test_runs_with_other_questions_are_not_compared():
    with pytest.raises(EvaluationError, match=r"t: only one of the runs has the question '1'"):
        compare(result([True]), result([True, False]))
