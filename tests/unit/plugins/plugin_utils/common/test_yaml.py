# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import dump_yaml, load_yaml, yaml_problem


def problem(text):
    with pytest.raises(yaml.YAMLError) as caught:
        load_yaml(text)
    return yaml_problem(caught.value, text)


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
        ("a: 1\n---\nb: 2\n", "but found another document (line 2, column 1)"),
        (
            "a: !!python/object:os.x {}\n",
            "could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:os.x' (line 1, column 4)",
        ),
    ],
)
def test_what_is_wrong_and_where_in_one_line(text, message):
    assert problem(text) == message


def test_a_character_that_yaml_does_not_take_has_no_line():
    found = problem("a: \x07b\n")
    assert "control characters are not allowed" in found
    assert "\n" not in found


def test_lists_are_indented_as_linters_expect():
    text = dump_yaml({"argv": ["vllm", "serve"], "results": [{"b": 1, "a": {"x": [1, 2]}}]})
    assert text == "argv:\n  - vllm\n  - serve\nresults:\n  - b: 1\n    a:\n      x:\n        - 1\n        - 2\n"
