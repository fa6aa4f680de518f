# SPDX-License-Identifier: GPL-3.0-or-later
"""The advice of refusals for vLLM's own recipes: nothing of it is refused when somebody follows it."""

import random

import pytest

from tests.fakes.advice import cases, hosts, wrong_advice

# Of a quarter of a million.
FEW, MANY = 300, 20_000


@pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_advice_for_upstream_s_recipes_can_be_followed(upstream_recipes, number):
    directories = [str(upstream_recipes)]
    names = sorted(str(path.relative_to(upstream_recipes).with_suffix("")) for path in upstream_recipes.rglob("*.yaml"))
    sample = random.Random(41).sample(cases(names, directories), number)
    assert [text for case in sample for text in wrong_advice(case, directories)] == []


def test_mimo_on_eight_h100(upstream_recipes):
    """Four of them have too little memory, and its attention cannot be divided among eight."""
    mimo = ("XiaomiMiMo/MiMo-V2.5", "default", {})
    eight = [host for host in hosts() if (host.model, host.count) == ("h100", 8)]
    assert [text for host in eight for text in wrong_advice((*mimo, host), [str(upstream_recipes)])] == []
