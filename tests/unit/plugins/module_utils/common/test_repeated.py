# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.repeated import REPEAT, Repeated


@pytest.fixture
def said():
    return []


@pytest.mark.parametrize("error", [KeyError("process"), TypeError("wrong"), RecursionError("deep"), OSError("gone")])
def test_a_step_that_fails_is_reported_and_the_next_one_follows(said, error):
    def failing():
        raise error

    now = [5.0]
    step = Repeated("the question to chat", said.append, clock=lambda: now[0])
    now[0] = 7.0
    assert not step.attempt(failing)
    assert step.worked_at == 5.0
    assert said[0].startswith(f"the question to chat failed, and is tried again: {type(error).__name__}: ")
    assert step.attempt(lambda: None)
    assert step.worked_at == 7.0


def test_the_same_failure_is_reported_once_a_minute(said):
    now = [0.0]
    step = Repeated("x", said.append, clock=lambda: now[0])
    for now[0] in (1.0, 2.0, REPEAT, REPEAT + 1, REPEAT + 2):
        step.attempt(lambda: 1 / 0)
    assert len(said) == 2
