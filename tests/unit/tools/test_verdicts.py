# SPDX-License-Identifier: GPL-3.0-or-later
"""No verdict of the plan changes unseen: recipes on hosts, public commands, inventories (upstream's: tests/parity)."""

from __future__ import annotations

import pytest

from tools import verdicts


@pytest.mark.parametrize("part", ["recipes", "commands", pytest.param("inventories", marks=pytest.mark.long)])
def test_no_verdict_has_changed(part):
    assert "\n".join(verdicts.differences(part)) == "", f"where this is meant: tools/verdicts.py {part}, and commit it"


def test_a_changed_verdict_is_shown_with_its_request(monkeypatch):
    known = {"h200:8 | vllm serve o/m --data-parallel-size 16": [], "a/recipe": ["on 1 x l4: gone"]}
    monkeypatch.setattr(verdicts, "read", lambda: {"commands": known})
    assert verdicts.differences("commands")[:2] == [
        "h200:8 | vllm serve o/m --data-parallel-size 16:",
        "  + refused: more chips requested than the host has: chat needs _ (_ replica of _)",
    ]
    assert verdicts.differences("commands")[2:4] == ["a/recipe:", "  - on 1 x l4: gone"]


def test_the_record_is_small():
    assert verdicts.RECORD.stat().st_size < 150_000
