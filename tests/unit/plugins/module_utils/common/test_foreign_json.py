# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_json import (
    dump_json,
    find_document,
    load_json,
)

TOP = Path(__file__).resolve().parents[5]


def test_texts_and_bytes_are_read():
    assert load_json('{"a": [1]}') == load_json(b'{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize(
    "text", ["", "{", "\ud800", b"\xff\xfe\xff", "[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_what_cannot_be_read_is_a_value_error(text):
    with pytest.raises(ValueError):
        load_json(text)


def test_what_was_read_and_cannot_be_written_is_a_value_error():
    assert dump_json({"b": [1], "a": None}) == '{"b": [1], "a": null}'
    deep = []
    for _level in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        dump_json(deep)
    # Python would call itself to remove them.
    while deep:
        deep = deep.pop()


def test_no_program_takes_less_stack_than_the_parser_needs():
    """With Python 3.12 and 3.13 it calls itself 10,000 times before it raises, for which 512 KiB are too few."""
    assert not [path for path in (TOP / "plugins").rglob("*.py") if "stack_size" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}), ('[{"a": 1}]', [{"a": 1}]), ('WARNING: [gpu 3] busy\n[{"a": 1}]\n', [{"a": 1}]),
        ('[1/8] reading {x}\n{"a": [1]}\nDone [ok].\n', {"a": [1]}), ('[8] chips\n{"a": 1} trailing }', {"a": 1}),
        ("[]", None), ("", None), ("nothing here", None), ('{"a": ', None), ("[1, 2]", None), ("[" * 100_000, None),
        ("{" * 1000 + '{"a": 1}', None),
    ],
)  # fmt: skip
def test_the_document_in_a_tools_output_is_found(text, found):
    assert find_document(text) == found


HALF = '{"a\\ud800": ["\\uDFFFx", {"b": "\\ud83d\\ude00"}], "n": [1, 0.5, null, true]}'
WHOLE = {"a?": ["?x", {"b": "\U0001f600"}], "n": [1, 0.5, None, True]}


@pytest.mark.parametrize("text", [HALF, HALF.encode(), HALF.encode("utf-16"), HALF.replace("\\ud800", "\ud800")])
def test_half_a_character_is_read_as_a_question_mark(text):
    """No text with one can be written into a file: the metrics of a host with an odd tool were not written any more."""
    assert load_json(text) == WHOLE


def test_half_a_character_in_bytes_is_read_as_json_does():
    assert load_json(b'["\xed\xa0\x80"]') == ["?"]
    assert load_json(r'["\\ud800 \ud800"]') == [r"\ud800 ?"]


def test_half_a_character_in_a_tools_output_is_a_question_mark():
    assert find_document(f"{HALF}\n") == WHOLE
    assert find_document('["\udc80"] [{"a": "\udc80"}]') == [{"a": "?"}]
    assert find_document('{"a": "\\ud800", "b":' + "[" * 100_000) is None
