# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.baremetal.inference.plugins.module_utils.instance import marks

MAP = Path(__file__).resolve().parents[5] / "plugins/README.md"
WORDS = [
    word
    for name, word in vars(marks).items()
    if name.isupper() and not name.endswith("_HEADER") and isinstance(word, str) and word.isalpha()
]


def test_every_mark_has_a_word_of_its_own():
    assert len(set(WORDS)) == len(WORDS) > 9


def test_the_map_lists_every_mark():
    (row,) = re.findall(r"Those of `module_utils/instance/marks.py`[^:]*: ([^.]*)\.", MAP.read_text())
    assert sorted(re.findall(r"`(\w+)`", row)) == sorted(WORDS)


def test_the_unit_of_an_instance():
    assert marks.unit_of("chat") == "vllm@chat.service"


def test_a_reason_fits_into_a_header_and_into_one_line_for_haproxy():
    assert marks.header_text("a\r\nb" + "x" * 300) == "a??b" + "x" * (marks.LONGEST_REASON - 4)
    assert marks.header_text(" xid 79\r\nup #x\u00e9y ") == "xid 79??up #x?y"
