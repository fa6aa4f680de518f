# SPDX-License-Identifier: GPL-3.0-or-later
"""The adapters of an instance, and what makes an engine have them."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.adapters import (
    AdapterError,
    adapters_in,
    adapters_of,
    changes_of,
    has_guard,
    loaded_adapters,
)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (None, {}),
        ([], {}),
        ("sql=/a", {"sql": "/a"}),
        (["sql=/a", "team/crew=/b=c"], {"sql": "/a", "team/crew": "/b=c"}),
        ([{"name": "sql", "path": "/a"}, '{"name": "x", "path": "/b"}'], {"sql": "/a", "x": "/b"}),
    ],
)
def test_every_form_of_an_adapter_is_read(entries, expected):
    assert adapters_of(entries) == expected


@pytest.mark.parametrize(
    "entry",
    ["sql", "=/a", "sql=", "{broken", '["a"]', 7, {"name": "sql"}, {"name": "sql", "path": None},
     {"name": "sql", "path": "/a", "base_model_name": "b"}, '{"name":"a","path":"/a","is_3d_lora_weight":true}'],
)  # fmt: skip
def test_what_the_endpoint_cannot_be_given_is_refused(entry):
    with pytest.raises(AdapterError, match="expected a name and a path"):
        adapters_of([entry])


def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(AdapterError, match="sql is in the list twice"):
        adapters_of(["sql=/a", "x=/b", "sql=/c"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: 1\n", {}),
        ("lora-modules:\n- sql=/a\n-   x=/b\nport: 1\n", {"sql": "/a", "x": "/b"}),
        ('lora-modules:\n- \'{"name": "sql", "path": "/a"}\'\n', {"sql": "/a"}),
    ],
)
def test_the_adapters_of_a_file_are_read(text, expected):
    assert adapters_in(text) == expected


def test_cards_with_a_parent_are_adapters():
    cards = [
        {"id": "m", "root": "/m", "parent": None},
        {"id": "m2", "root": "/m"},
        {"id": "a", "root": "/a", "parent": "m"},
    ]
    assert loaded_adapters({"data": cards}) == {"a": "/a"}
    for answer in ({}, [], {"data": 3}, {"data": [{"parent": "m"}]}, None):
        with pytest.raises(AdapterError, match="not that of vLLM"):
            loaded_adapters(answer)


def test_what_has_to_change():
    found = changes_of({"same": "/s", "moved": "/1", "old": "/o"}, {"same": "/s", "moved": "/2", "new": "/n"})
    assert (found.load, found.replace, found.unload) == ({"new": "/n"}, {"moved": "/2"}, {"old": "/o"})
    assert found and not changes_of({"a": "/a"}, {"a": "/a"})


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, False),
        ({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}, False),
        ({"OPERATOR_GUARD": "1"}, False),
        ({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0", "OPERATOR_GUARD": "1"}, False),
        ({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "OPERATOR_GUARD": "1"}, True),
    ],
)
def test_an_engine_needs_the_endpoints_and_the_guard(env, expected):
    assert has_guard(env) is expected
