# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.instance import marks


def test_every_mark_has_a_word_of_its_own():
    names = ("READY", "WITHDRAWN", "STOPPING", "CLOSED", "UNHEALTHY", "WATCHED", "HOLD", "OPERATOR", "APPLIED")
    words = [getattr(marks, name) for name in names]
    assert len(set(words)) == len(words) and all(word.isalpha() for word in words)


def test_the_unit_of_an_instance():
    assert marks.unit_of("chat") == "vllm@chat.service"
