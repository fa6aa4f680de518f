# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.drift.options import (
    differences_of,
    entry_of,
    paths_of,
    states_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable

INTEGER, TEXT = {"kind": "integer"}, {"kind": "text"}
FLAGS = {
    "port": INTEGER,
    "compilation-config": {"kind": "json", "keys": {"mode": "integer", "pass-config": {"kind": "json", "keys": {}}}},
    "extra": {"kind": "json"},
}
OPTIONS = OptionTable("0.33.0", FLAGS, {})


def choice(*values):
    return {"kind": "choice", "values": list(values)}


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        (("port",), INTEGER), (("gone",), None), (("gone", "x"), None), (("port", "x"), None),
        (("compilation-config", "mode"), INTEGER), (("compilation-config", "gone"), None),
        # A flag without a list of keys takes any.
        (("extra", "x"), {"kind": "any"}), (("extra", "x", "y"), {"kind": "any"}),
    ],
)  # fmt: skip
def test_a_key_inside_a_flag_is_what_the_table_states(path, entry):
    assert entry_of(OPTIONS, path) == entry


def test_all_paths_of_a_table_are_found():
    assert list(paths_of(OPTIONS)) == [
        ("port",), ("compilation-config",), ("compilation-config", "mode"), ("compilation-config", "pass-config"),
        ("extra",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        (INTEGER, INTEGER, []), (INTEGER, TEXT, ["now takes a text"]),
        (choice("a", "b"), choice("b", "c"), ["no longer takes a", "takes c"]),
        ({**INTEGER, "words": ["auto"]}, INTEGER, ["now takes an integer"]),
        ({"kind": "boolean", "negatable": True}, {"kind": "boolean"}, ["can no longer be switched off"]),
        ({"kind": "boolean"}, {"kind": "boolean", "negatable": True}, []),
        ({**TEXT, "aliases": ["x", "y"]}, {**TEXT, "aliases": ["y", "z"]}, ["no longer called x"]),
        ({"kind": "list", "of": "integer"}, {"kind": "list", "of": "text"}, ["now takes a list, each a text"]),
        ({"kind": "json"}, {"kind": "json", "text": True}, ["now takes a mapping or a text"]),
        (
            {**TEXT, "plugin": "tool", "known": ["a", "old"]}, {**TEXT, "plugin": "tool", "known": ["a", "new"]},
            ["no longer has the parser old", "has the parser new"],
        ),
        (TEXT, {**TEXT, "plugin": "tool", "known": ["hermes"]}, []),
    ],
)  # fmt: skip
def test_what_a_flag_takes_is_compared(before, after, texts):
    assert differences_of(before, after) == texts


def test_a_long_choice_shows_what_changed_and_a_short_one_all():
    few, many = choice("a", "b"), choice(*"abcdefg")
    assert states_of(few, choice("a"), ["no longer takes b"]) == ("one of a, b", "no longer takes b")
    assert states_of(many, few, ["no longer takes c"]) == ("one of 7 values", "no longer takes c")
    assert states_of(None, INTEGER, []) == ("not there", "an integer")
    assert states_of({"kind": "switch"}, None, []) == ("a switch", "not there")
