# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of `make monitoring` that fail; tests/integration/test_monitoring_demo.py runs it."""

from __future__ import annotations

import pytest

from tools import monitoring_demo as demo


def test_a_step_that_does_not_happen_fails_and_is_named(monkeypatch, capsys):
    monkeypatch.setattr(demo, "PATIENCE", 0.1)
    with pytest.raises(SystemExit, match=r"The alert has ended: not within 0\.1 s"):
        demo.until("The alert has ended", lambda: False)
    assert "The alert has ended: FAILED" in capsys.readouterr().out


def test_a_prometheus_that_does_not_answer_yet_is_asked_again(monkeypatch, capsys):
    answers = iter([OSError(), ValueError(), True])
    monkeypatch.setattr(demo.time, "sleep", lambda _seconds: None)

    def condition():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    demo.until("It answers", condition)
    assert capsys.readouterr().out.endswith("s  It answers\n")


def test_a_target_that_is_down_is_not_counted_as_its_job(monkeypatch):
    targets = [{"labels": {"job": job}, "health": health} for job, health in (("vllm", "up"), ("vllm", "down"))]
    monkeypatch.setattr(demo, "ask", lambda _url: {"data": {"activeTargets": targets}})
    assert demo.targets_up("http://x") == {"vllm": 1, "down": 1}


def test_a_failed_request_fails_the_demo():
    with demo.Load("http://127.0.0.1:9") as load:
        demo.time.sleep(0.3)
    assert load.answered == 0 and load.failed
