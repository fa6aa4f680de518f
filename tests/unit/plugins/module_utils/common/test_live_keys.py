# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether two texts of a configuration differ in some keys only."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.live_keys import differs_only_in

KEYS = ("lora-modules",)
HEAD = "#\n# Ansible managed\n#\nenable-lora: true\n"
ONE, TWO = "lora-modules:\n- sql=/a\n", "lora-modules:\n-   sql=/b\n-   'x=/c'\n"
TAIL = "max-loras: 2\nport: 8000\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HEAD + ONE + TAIL, HEAD + TWO + TAIL),
        (HEAD + TAIL, HEAD + ONE + TAIL),
        (HEAD + ONE + TAIL, HEAD + TAIL),
        (HEAD + ONE, HEAD + TWO),
        (HEAD + "lora-modules: sql=/a\n" + TAIL, HEAD + "lora-modules: [sql=/b]\n" + TAIL),
        (HEAD + "lora-modules:\n    sql=/a\n" + TAIL, HEAD + TWO + TAIL),
    ],
)
def test_only_the_key_differs(before, after):
    assert differs_only_in(before, after, KEYS)
    assert not differs_only_in(before, after, ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HEAD + ONE + TAIL, HEAD + ONE + TAIL),
        (HEAD + ONE + TAIL, HEAD + TWO + TAIL.replace("2", "3")),
        (HEAD + ONE + TAIL, HEAD + TWO + "port: 8000\n"),
        (HEAD + ONE + TAIL, HEAD + TWO + TAIL + "max-cpu-loras: 4\n"),
        (HEAD + ONE + TAIL, HEAD.replace("true", "false") + TWO + TAIL),
        ("", HEAD + ONE),
        # The list of another key.
        (HEAD + "served-model-name:\n- a\n" + ONE, HEAD + "served-model-name:\n- b\n" + TWO),
        # A text that continues over lines has such a line too, which is indented.
        ("x: |-\n    lora-modules:\n    a\nport: 1\n", "x: |-\n    lora-modules:\n    b\nport: 1\n"),
        ("lora-modules-x:\n- a\n", "lora-modules-x:\n- b\n"),
        (HEAD + ONE + "# a\n", HEAD + TWO + "# b\n"),
    ],
)
def test_nothing_or_something_else_differs(before, after):
    assert not differs_only_in(before, after, KEYS)
