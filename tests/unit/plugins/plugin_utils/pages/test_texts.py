# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of pages: nothing that is inserted can break out."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.pages.texts import (
    SharedTexts,
    escape_json,
    fill_page,
)

PARTS = {"html": "<title>@TITLE@</title>@STYLE_HASH@ @SCRIPT_HASH@ @STYLE@ @SCRIPT@ @DATA@", "css": "a{}", "js": "f()"}


def test_a_mark_inside_an_inserted_text_stays_text():
    page = fill_page(PARTS, "<@DATA@>", "1")
    assert page.startswith("<title>&lt;@DATA@&gt;</title>sha256-") and page.endswith(" a{} f() 1")


def test_json_holds_nothing_of_html():
    text = escape_json(json.dumps({"host": "</script><!-- & x"}))
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"host": "</script><!-- & x"}


def test_shared_values_are_stored_once_and_the_empty_one_is_number_0():
    texts = SharedTexts()
    assert [texts.number(text) for text in ("a", "", "b", "a")] == [1, 0, 2, 1]
    assert texts.all == ["", "a", "b"]
