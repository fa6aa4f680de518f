# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML that nobody vouches for."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import yaml_events as _event_yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml_events import (
    DEEPEST,
    EventReader,
    EventYamlError,
)

SAME_AS_PYYAML = [
    "",
    "~",
    "a",
    "[]",
    "{}",
    "- 1\n- [2, {a: b}]\n- ''\n",
    "a: yes\nb: 'yes'\nc: 0x1f\nd: 1_000\ne: 1.5e3\nf: ~\ng: null\nh: '~'\ni: .5\nj: 0b11\nk: 017\n",
    "a: |\n  two\n  lines\nb: >\n  one\n  line\n",
    "a: &x {b: 1, c: [2]}\nd: *x\ne: {<<: *x, c: 3}\nf: {<<: [{p: 1}, {p: 2, q: 3}]}\n",
    "!!str 5: !!int '6'\n7: !!float 8\n",
    "true: 1\nnull: 2\n1.5: 3\n",
    "--- !!map {a: !!seq [1]}\n...\n",
]


@pytest.mark.parametrize("text", SAME_AS_PYYAML)
def test_plain_values_are_what_pyyaml_makes_of_them(text):
    assert EventReader().read(text) == yaml.safe_load(text)


def test_a_date_stays_text():
    assert EventReader().read("a: 2026-11-21") == {"a": "2026-11-21"}


def test_lines_of_the_entries():
    reader = EventReader()
    reader.read("# a fleet\nhosts:\n  gpu-1: {x: {gpu-2: 1}}\n\n  gpu-2:\n    y: 1\n")
    assert reader.lines == {"gpu-1": 3, "gpu-2": 5}


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a' is there twice", 3),
        ("hosts:\n  a: {}\n  b: {}\n  a: {}\n", "first in line 2", 4),
        ("a: !vault |\n  6162\n", "!vault", 1),
        ("a: !!python/object/apply:os.system [id]\n", "tag:yaml.org,2002:python/object/apply:os.system", 1),
        ("a: 1\n--- \nb: 2\n", "second document", 2),
        ("a:\n  - [1\n", "", 3),
        ("a: b: c\n", "mapping values are not allowed", 1),
        ("a: 1\nb: *x\n", "x", 2),
        ("x\0y", "#x0000", 1),
        ("? {a: 1}\n: 2\n", "as a key", 1),
        ("<<: 3\n", "to merge", 1),
        ("a: <<\n", "found << as a value", 1),
        ("[<<]", "found << as a value", 1),
        ("a: !!int x\n", "'x', which is no int", 1),
        ("a: 99999999999999999999999\n", "which is no int", 1),
        ("&a [*a]", "a", 1),
    ],
)
def test_anything_else_is_an_error_with_its_line(text, words, line):
    with pytest.raises(EventYamlError) as caught:
        EventReader().read(text)
    assert words in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "{a: " * 5000 + "}" * 5000, "- " * 5000 + "x"])
def test_no_file_is_nested_without_end(text):
    with pytest.raises(EventYamlError, match=f"nested deeper than {DEEPEST} levels|exceeded maximum nesting depth"):
        EventReader().read(text)


def test_aliases_count_as_what_they_stand_for(monkeypatch):
    monkeypatch.setattr(_event_yaml, "MOST_NODES", 1000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 4)]
    assert EventReader().read("\n".join(lines[:2]))
    with pytest.raises(EventYamlError, match="more than 1,000 values"):
        EventReader().read("\n".join(lines))


def test_long_texts_count_as_more_than_one(monkeypatch):
    monkeypatch.setattr(_event_yaml, "MOST_NODES", 1000)
    with pytest.raises(EventYamlError, match="more than 1,000 values"):
        EventReader().read(f"a: &a {'x' * 32_000}\nb: [*a, *a]\n")
