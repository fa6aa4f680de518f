# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.plan_document import PlanDocument

from tests.fakes.plans import MI300X, plan, recipe

EVERY = ["single_node_tp", "multi_node_tp"]


@pytest.mark.parametrize(
    ("requested", "more"),
    [
        ({}, set()),
        ({"nodes": ["h1", "h2"], "strategy": "multi_node_tp"}, {"group"}),
        ({"replicas": 2, "scale": {"min": 1, "max": 2}}, {"scale"}),
    ],
)
def test_a_plan_has_the_keys_of_its_document_and_the_optional_ones_where_they_say_something(requested, more):
    found = plan(requested, MI300X, recipe(compatible_strategies=EVERY)).as_dict()
    assert set(found) == PlanDocument.__required_keys__ | more
    assert more <= PlanDocument.__optional_keys__
