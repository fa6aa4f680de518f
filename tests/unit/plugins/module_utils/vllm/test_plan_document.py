# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import fields

from ansible_collections.baremetal.inference.plugins.module_utils.vllm.plan_document import PlanDocument
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import ServePlan


def test_the_document_has_the_fields_of_a_plan_and_their_types():
    expected = {field.name: field.type for field in fields(ServePlan)}
    # The document of an instance on one host has no such key.
    assert expected.pop("group") == "GroupDocument | None"
    expected["group"] = "GroupDocument"
    # Nor has that of one with its own chips.
    assert expected.pop("residents") == "str | None"
    expected["residents"] = "str"
    # Nor has that of one whose weights leave the chips with its engine.
    assert expected.pop("preload") == "bool | None"
    expected["preload"] = "bool"
    # Nor has that of one that always serves.
    assert expected.pop("scale") == "dict[str, Any] | None"
    expected["scale"] = "dict[str, Any]"
    assert {name: kind.__forward_arg__ for name, kind in PlanDocument.__annotations__.items()} == expected
