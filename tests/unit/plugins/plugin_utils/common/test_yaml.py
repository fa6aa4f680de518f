# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import yaml as common_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import (
    UnreadableError,
    dump_yaml,
    load_yaml,
    read_yaml,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml_events import EventYamlError


def problem(text):
    with pytest.raises(EventYamlError) as caught:
        load_yaml(text)
    return caught.value.with_place()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: [1, 0.5, true, null, x]\n", {"a": [1, 0.5, True, None, "x"]}),
        ("1: a\n", {1: "a"}),
        # Merge keys are plain YAML, and the key of the mapping itself wins.
        ("x: &x {a: 1, b: 1}\ny: {<<: *x, b: 2}\n", {"x": {"a": 1, "b": 1}, "y": {"a": 1, "b": 2}}),
        ("a: 'a\ttab in a text'\n", {"a": "a\ttab in a text"}),
    ],
)
def test_plain_values(text, value):
    assert load_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "the key 'a' is there twice (line 2, column 1)"),
        ("x:\n  - {b: 1, b: 2}\n", "the key 'b' is there twice (line 2, column 12)"),
        ("a:\n\tb: 1\n", "found a tab, YAML is indented with spaces (line 2, column 1)"),
        ("a: 1\n\tb: 2\n", "found a tab, YAML is indented with spaces (line 2, column 1)"),
        (
            "a: {{ b }}\n",
            "found {'b': null} as a key, expected a text; put a value with braces in quotes (line 1, column 5)",
        ),
        ("? [a]\n: b\n", "found ['a'] as a key, expected a text; put a value with braces in quotes (line 1, column 3)"),
        ("a: [\n", "did not find expected node content (line 2, column 1)"),
        ("a: 1\n---\nb: 2\n", "a second document begins here, expected one (line 2, column 1)"),
        (
            "a: !!python/object:os.x {}\n",
            "found the tag tag:yaml.org,2002:python/object:os.x, expected plain values (line 1, column 4)",
        ),
        ("a: " + "9" * 6000, f"found '{'9' * 40}', which is no int (line 1, column 4)"),
        ("a: 0x" + "f" * 6000, f"found '0x{'f' * 38}', which is no int (line 1, column 4)"),
        ("a: 1" + ":30" * 6000, f"found '1{':30' * 13}', which is no int (line 1, column 4)"),
        ("a:\n  - 1e99999999999\n  - " + "9" * 30, f"found '{'9' * 30}', which is no int (line 3, column 5)"),
    ],
)
def test_what_is_wrong_and_where_in_one_line(text, message):
    assert problem(text) == message


def test_a_character_that_yaml_does_not_take_is_named():
    assert problem("a: 1\nb: \x07b\n") == "the character #x0007 is not allowed in YAML (line 2, column 1)"


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
)


@pytest.mark.parametrize("text, told", [
    ("[" * 50_000, "nested deeper than 20 levels (line 1, column 21)"),
    ("{a: " * 50_000, "nested deeper than 20 levels (line 1, column 81)"),
    ("- " * 50_000, "nested deeper than 20 levels (line 1, column 41)"),
    ("? " * 50_000, "nested deeper than 20 levels (line 1, column 41)"),
    ("a: 2026-13-45\nb: " + "9" * 6000, "which is no int (line 2, column 4)"),
    (BOMB, "more than 5,000,000 values, with aliases expanded (line 7, column "),
    ("a: " + "x" * 2000, "it has more than 1,000 bytes"),
    (b"a: \xff\xfe", "'utf-8' codec can't decode byte 0xff"),
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_a_file_that_is_out_of_bounds_is_named(text, told, tmp_path, monkeypatch):
    if "bytes" in told:
        monkeypatch.setattr(common_yaml, "MOST_BYTES", 1000)
    path = tmp_path / "recipe.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UnreadableError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}: cannot be read: ")
    # libyaml 0.2.6 and newer have a bound of their own.
    assert told in str(caught.value) or (
        told.startswith("nested") and "exceeded maximum nesting depth" in str(caught.value)
    )


def test_a_pipe_and_a_missing_file_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.yml")
    with pytest.raises(UnreadableError, match=r"pipe.yml: cannot be read: it is not a file"):
        read_yaml(tmp_path / "pipe.yml")
    with pytest.raises(UnreadableError, match=r"none.yml: cannot be read: .*No such file"):
        read_yaml(tmp_path / "none.yml")


def test_lists_are_indented_as_linters_expect():
    text = dump_yaml({"argv": ["vllm", "serve"], "results": [{"b": 1, "a": {"x": [1, 2]}}]})
    assert text == "argv:\n  - vllm\n  - serve\nresults:\n  - b: 1\n    a:\n      x:\n        - 1\n        - 2\n"
