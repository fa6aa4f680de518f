# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError
from ansible_collections.baremetal.inference.plugins.plugin_utils.weights.request import list_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("openai/gpt-oss-20b", ["openai/gpt-oss-20b"]),
        ("hub, /media/disk", ["hub", "/media/disk"]),
        ({"source": "hub"}, [{"source": "hub"}]),
        (["hub"], ["hub"]),
        ([], []),
    ],
)
def test_text_or_mapping_counts_as_a_list_of_one(value, expected):
    assert list_of("sources", value) == expected


def test_option_that_was_not_given_is_an_empty_list():
    assert list_of("sources", None) == []


@pytest.mark.parametrize(
    ("option", "value", "shown"), [("sources", 7, "7"), ("models", None, "nothing"), ("models", True, "true")]
)
def test_other_value_names_the_roles_variable(option, value, shown):
    with pytest.raises(WeightsError, match=f"^weights_{option}: found {shown}, expected a list$"):
        list_of(option, value)
