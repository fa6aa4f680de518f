# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of pages: nothing that is inserted can break out."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.pages.texts import (
    SharedTexts,
    escape_json,
    fill_page,
)

PARTS = {
    "frame": "@TITLE@|@SCRIPT_POLICY@@STYLE_HASH@|@STYLE@|@BODY@@SCRIPTS@",
    "html": "<h1>@TITLE@</h1>\n",
    "css": "a{}",
    "js": "f()",
}


def test_a_mark_inside_an_inserted_text_stays_text():
    page = fill_page(PARTS, "<@DATA@>", "1")
    assert page.startswith("&lt;@DATA@&gt;|script-src 'sha256-")
    assert page.endswith(
        '|a{}|<h1>&lt;@DATA@&gt;</h1>\n<script id="data" type="application/json">1</script>\n<script>f()</script>\n'
    )


def test_a_page_without_a_script_allows_none():
    page = fill_page({name: text for name, text in PARTS.items() if name != "js"} | {"html": "@DATA@"}, "t", "<p>1</p>")
    assert "script" not in page and page.endswith("|a{}|<p>1</p>")


def test_json_holds_nothing_of_html():
    text = escape_json(json.dumps({"host": "</script><!-- & x"}))
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"host": "</script><!-- & x"}


def test_shared_values_are_stored_once_and_the_empty_one_is_number_0():
    texts = SharedTexts()
    assert [texts.number(text) for text in ("a", "", "b", "a")] == [1, 0, 2, 1]
    assert texts.all == ["", "a", "b"]
