# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.baremetal.inference.plugins.filter.roles import FilterModule as PlanFilters

plan_table = PlanFilters().filters()["plan_table"]

PLAN = {"host": "a", "instance": "chat", "explain": [{"key": "port", "value": 8000, "layer": "instance"}]}


def test_plans_become_a_table():
    text = plan_table(iter([PLAN]))
    assert "chat on a" in text and "port  8000   instance" in text


@pytest.mark.parametrize("wrong", [["x"], [{}], 5])
def test_something_else_is_refused_in_words(wrong):
    with pytest.raises(AnsibleFilterError, match="plan_table: expected a list of plans"):
        plan_table(wrong)
