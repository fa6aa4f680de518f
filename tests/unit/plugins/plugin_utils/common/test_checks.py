# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.checks import (
    A_NAME,
    ABOVE_ZERO,
    ANY_TEXT,
    COUNT,
    is_number,
    problem_of,
)

KNOWN = {"name": A_NAME, "count": COUNT, "note": ANY_TEXT, "share": ABOVE_ZERO}


def test_nothing_is_wrong_with_what_is_known_and_of_its_form():
    assert problem_of({"name": "h200", "count": 8, "note": "a\nb", "share": 0.5}, KNOWN, required=("name",)) == ""


@pytest.mark.parametrize(
    ("value", "where", "problem"),
    [
        (["h200"], "", "the file: found ['h200'], expected a mapping"),
        (None, "chips", "chips: found nothing, expected a mapping"),
        ({"nmae": "h200"}, "", "unknown key 'nmae'; nearest"),
        ({"nmae": "h200"}, "chips", "unknown key 'chips.nmae'; nearest"),
        ({"name": "H200"}, "chips", "chips.name: found 'H200', expected a name in lower case, like h200"),
        ({"count": True}, "", "count: found true, expected a number from 1"),
        ({"count": 0}, "", "count: found 0, expected a number from 1"),
        ({"share": 0}, "", "share: found 0, expected a number above 0"),
        ({"note": ""}, "", "note: found '', expected a text"),
        ({"count": 1}, "", "name: is missing; expected a name in lower case, like h200"),
        ({"count": 1}, "chips", "chips.name: is missing; expected a name in lower case, like h200"),
    ],
)
def test_the_first_problem_is_told_with_its_place(value, where, problem):
    assert problem_of(value, KNOWN, where, required=("name",)).startswith(problem)


def test_true_is_no_number():
    assert [is_number(value) for value in (1, 0.5, True, "1", None)] == [True, True, False, False, False]
