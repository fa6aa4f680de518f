# SPDX-License-Identifier: GPL-3.0-or-later
"""A refusal advises nothing that is refused when somebody follows it."""

import random

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import known_names

from tests.fakes.advice import cases, wrong_advice

FEW = 400


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_advice_for_the_collection_s_recipes_can_be_followed(whole):
    found = cases(known_names("recipes", (".yaml", ".yml"), []))
    sample = found if whole else random.Random(41).sample(found, FEW)
    assert [text for case in sample for text in wrong_advice(case)] == []
