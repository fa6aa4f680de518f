# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.stat_rows import read_rows

HEADING = "# pxname,svname,last_chk,\n"
# At each of these Python's splitlines() ends a line; HAProxy quotes a text for \r only.
ENDS = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("end", ENDS)
def test_the_reason_of_an_engine_ends_no_row(end):
    (row,) = read_rows(f"{HEADING}chat,a,No{end}Go,\n\n")
    assert row["last_chk"] == f"No{end}Go"


@pytest.mark.parametrize("text", ["a\rb", 'say "no"', "a,b", "a\nb,c,d"])
def test_what_haproxy_quotes_is_one_text(text):
    quoted = text.replace('"', '""')
    (row,) = read_rows(f'{HEADING}chat,a,"{quoted}",\n\n')
    assert row["last_chk"] == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Unknown command.\n",
        f"{HEADING}chat,a,b,\n",
        f"{HEADING}chat,a\n\n",
        f"{HEADING}a,b,c,,d\n\n",
        f'{HEADING}a,"b\n\n',
    ],
)
def test_anything_else_is_an_error(text):
    with pytest.raises(ValueError, match="HAProxy's counters"):
        read_rows(text)
