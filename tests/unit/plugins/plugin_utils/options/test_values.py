# SPDX-License-Identifier: GPL-3.0-or-later
"""Values against entries of a table, as argparse and pydantic of vLLM take or refuse them."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options import values

ABOVE_0 = {"kind": "number", "gt": 0}
INTEGER, NUMBER, TEXT = {"kind": "integer"}, {"kind": "number"}, {"kind": "text"}
CHOICE = {"kind": "choice", "values": ["auto", "fp8_e4m3", 16]}


@pytest.mark.parametrize(
    ("entry", "value", "fits"),
    [
        (INTEGER, 8, True), (INTEGER, "8", True), (INTEGER, 8.5, False), (INTEGER, "8k", False), (INTEGER, True, False),
        ({**INTEGER, "suffix": True}, "8k", True), ({**INTEGER, "suffix": True}, "1.5k", True),
        ({**INTEGER, "suffix": True}, "1.5K", False), ({**INTEGER, "words": ["auto"]}, "auto", True),
        ({**INTEGER, "ge": 1}, 0, False), ({**INTEGER, "gt": 0, "le": 8}, 8, True), ({**INTEGER, "lt": 8}, 8, False),
        ({**INTEGER, "step": 16}, 48, True), ({**INTEGER, "step": 16}, 24, False), ({**INTEGER, "step": 16}, 1, True),
        (INTEGER, "9" * 41, False), (INTEGER, [1], False), (INTEGER, {"a": 1}, False),
        (NUMBER, "0.9", True), (NUMBER, ".9", True), (NUMBER, "1e-3", True), (NUMBER, "nan", False),
        (NUMBER, "inf", False),
        (TEXT, "", False), (TEXT, "x", True), ({"kind": "switch"}, True, True), ({"kind": "switch"}, "true", False),
        (CHOICE, "auto", True), (CHOICE, 16, True), (CHOICE, "Auto", False),
        ({**CHOICE, "any_case": True}, "Auto", True),
        (CHOICE, "fp8-e4m3", False), ({**CHOICE, "dashes": True}, "fp8-e4m3", True),
        ({**CHOICE, "none": True}, "None", True),
        ({"kind": "list", "of": "integer"}, [1, "2"], True), ({"kind": "list", "of": "integer"}, [1, "x"], False),
        ({"kind": "list"}, [], False), ({"kind": "list"}, "one", True), ({"kind": "list"}, [{"name": "a"}], True),
        ({"kind": "list"}, [None], False), ({**INTEGER, "repeat": True}, [1, 2], True), (INTEGER, [1, 2], False),
        ({**TEXT, "bare": True}, True, True), ({"kind": "choice", "values": [True, "x"]}, True, True),
    ],
)  # fmt: skip
def test_a_flag_takes_a_value_or_does_not(entry, value, fits):
    assert values.fits(entry, value) == fits


@pytest.mark.parametrize(
    ("entry", "text", "reads"),
    [
        ({"kind": "boolean"}, "True", True), ({"kind": "boolean"}, "off", True), ({"kind": "boolean"}, "yes", False),
        ({"kind": "one"}, "1", True), ({"kind": "one"}, "true", False), ({"kind": "level"}, "WARNING", True),
        (INTEGER, "1_000", True), (INTEGER, "1.0", False), (NUMBER, "1e3", True), ({"kind": "json"}, "{", False),
        ({"kind": "json"}, '{"a": 1}', True), (TEXT, "", True), (CHOICE, "auto", True), (CHOICE, "auto,16", False),
        *((ABOVE_0, text, False) for text in ("0", "-5", "soon", "nan", "inf", "1e999", "9" * 50, "")),
        (ABOVE_0, "0.5", True), (NUMBER, "inf", True),
        ({**CHOICE, "many": True}, "auto, 16,", True), ({"kind": "stream"}, "ext://sys.stderr", True),
    ],
)  # fmt: skip
def test_a_variable_is_read_as_pythons_code_does(entry, text, reads):
    assert values.reads(entry, text) == reads


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8), ("1k", 1000), ("1K", 1024), ("1.5m", 1_500_000), ("2G", 2 * 1024**3), ("1.5G", None), ("k", None),
        ("1" * 41, None), ("0x8", None), ("", None), ("8\n", None),
    ],
)  # fmt: skip
def test_suffixes_are_those_of_vllm(text, number):
    assert values.read_number(text) == number


KEYS = {
    "keys": {
        "mode": {"kind": "integer", "ge": 0, "le": 3}, "level": CHOICE, "sizes": {"kind": "list", "of": "integer"},
        "pass_config": {"kind": "json", "keys": {"fuse": "boolean"}}, "name": "text", "ratio": "number",
        "parser": {"kind": "text", "closed": True, "known": ["hermes"]},
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"mode": 3, "level": "auto", "sizes": [1, "2"], "pass_config": {"fuse": "yes"}, "ratio": "1"}, []),
        ({"mode": "3", "level": 16, "sizes": None, "pass_config": "short"}, []), ({"mode": 2.0, "ratio": True}, []),
        ({"mdoe": 1}, ["mdoe: no such key in {version}{history}; nearest: 'mode'"]),
        ({"pass_config": {"fsue": 1}}, ["pass_config.fsue: no such key in {version}{history}; nearest: 'fuse'"]),
        ({"mode": 4}, ["mode: expected an integer of at least 0 and of at most 3, found 4"]),
        ({"mode": 1.5}, ["mode: expected an integer of at least 0 and of at most 3, found 1.5"]),
        ({"sizes": "1"}, ['sizes: expected a list, each an integer, found "1"']),
        ({"sizes": [None]}, ["sizes: expected a list, each an integer, found [null]"]),
        ({"name": 1}, ["name: expected a text, found 1"]),
        ({"pass_config": [1]}, ["pass_config: expected a mapping (JSON)"]),
        ({"level": "16"}, ["level: expected one of auto, fp8_e4m3, 16, found \"16\"; write it as a number"]),
        ({"level": "fp8_e4m4"}, ["level: expected one of auto, fp8_e4m3, 16, found \"fp8_e4m4\"; nearest: 'fp8_e4m3'"]),
        ({"parser": "hermse"}, ["parser: no such value in {version}: 'hermse'; nearest: 'hermes'"]),
        ({"mode": {"{x}": 1}}, ["mode: expected an integer of at least 0 and of at most 3, found {{\"{{x}}\": 1}}"]),
    ],
)  # fmt: skip
def test_keys_of_json_are_judged_as_pydantic_does(value, problems):
    found = [f"{'.'.join(path)}: {text}" for path, text in values.key_problems(KEYS, value, ())]
    assert len(found) == len(problems)
    assert all(text.startswith(problem) for text, problem in zip(found, problems)), found


def test_what_a_plugin_registers_is_no_problem():
    assert list(values.key_problems(KEYS, {"parser": "mine", "level": "own"}, (), {"mine", "own"})) == []
    assert values.is_unlisted(KEYS["keys"]["parser"], "mine") and not values.is_unlisted(TEXT, "mine")
    assert not values.is_unlisted(KEYS["keys"]["parser"], "HERMES")


@pytest.mark.parametrize(
    ("text", "value"),
    [("True", True), ("true", True), ("1", 1), ('{"a": [1]}', {"a": [1]}), ("x y", "x y"), (5, 5), ("{", "{")],
)
def test_a_dotted_value_is_json_where_it_can_be(text, value):
    assert values.decoded(text) == value


def test_messages_show_no_more_than_they_need():
    assert values.described("x" * 300).endswith("...") and len(values.described("x" * 300)) < 210
    assert values.near_value(CHOICE, "AUTO") == "; nearest: 'auto'" and values.near_value(CHOICE, "zzzzz") == ""
    assert values.is_port("MASTER_PORT", INTEGER) and not values.is_port("PORTS", INTEGER)
    assert values.expected({**INTEGER, "suffix": True, "words": ["auto"]}) == "an integer (16k and 16K too) or auto"
