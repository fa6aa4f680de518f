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
