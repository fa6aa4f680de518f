# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_text import (
    escape_controls,
    quote_foreign,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Not Found", "Not Found"),
        ("größer 模型", "größer 模型"),
        ("a\x1b[2Jb\r\nc", r"a\x1b[2Jb\r\nc"),
        ("\u202eevil", r"\u202eevil"),
        ("\udc80", r"\udc80"),
    ],
)
def test_controls_are_escaped_and_letters_are_kept(text, shown):
    assert escape_controls(text) == shown


def test_long_text_is_cut():
    assert quote_foreign("x" * 500) == "x" * 200 + "..."
    assert quote_foreign(OSError("no\n"), 2) == "no..."
