# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.repeated import Repeated
from ansible_collections.baremetal.inference.plugins.module_utils.health import questions_host
from ansible_collections.baremetal.inference.plugins.module_utils.health.questions_host import Background, ask_tool
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.tools_host import RecordsAnswer


def test_a_question_that_fails_once_is_asked_again():
    said, answers = [], iter([KeyError("process"), TypeError("[]"), "well"])

    def ask():
        answer = next(answers, "well")
        if isinstance(answer, Exception):
            raise answer
        return answer

    background = Background(ask, 0.01, Repeated("The question", said.append))
    deadline = time.monotonic() + 60
    while (found := background.take()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert found == "well"
    assert [text.split(":")[1].strip() for text in said if "failed" in text] == ["KeyError", "TypeError"]


@pytest.mark.parametrize("stack", ["cuda", "cann", "cpu", "rocm"])
def test_only_amds_tool_is_asked_for_error_records(stack, monkeypatch):
    monkeypatch.setattr(questions_host, "ask_counters", lambda _stack: None)
    monkeypatch.setattr(questions_host, "read_records", lambda: RecordsAnswer(problem="asked"))
    assert ask_tool(stack).records.problem == ("asked" if stack == "rocm" else "")
