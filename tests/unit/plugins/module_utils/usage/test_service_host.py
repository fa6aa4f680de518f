# SPDX-License-Identifier: GPL-3.0-or-later
"""The service: its loops go on, and its page says when they last worked."""

from __future__ import annotations

import threading
import time

from ansible_collections.baremetal.inference.plugins.module_utils.usage import service_host


def service(tmp_path, **more):
    config = {
        "gateway": "gw1", "gateways": ["gw1"],
        "servers": {"127.0.0.1:1": {"name": "gw--chat-1", "service": "chat", "models": ["m"]}},
        "database": str(tmp_path / "usage.sqlite"),
        "months": 13, "port": 0, "budgets": {"alice": {"day": 5}}, "map": "/over.map", "secret": "/none",
        "stats": str(tmp_path / "none"),
    }  # fmt: skip
    return service_host.UsageService(config | more)


def test_whatever_a_step_raises_its_thread_goes_on(tmp_path, monkeypatch, capsys):
    found, steps, ended = service(tmp_path), threading.Semaphore(0), threading.Event()

    def step():
        if ended.is_set():
            # Nothing ends such a thread.
            threading.Event().wait()
        steps.release()
        raise RecursionError("deep")

    monkeypatch.setattr(service_host, "PAUSE", 0.01)
    monkeypatch.setattr(found.followers[0], "step", step)
    monkeypatch.setattr(found.map, "step", step)
    found.start()
    assert all(steps.acquire(timeout=60) for _time in range(10))
    ended.set()
    said = capsys.readouterr().out
    for name in ("gw--chat-1", "budgets"):
        assert f"{name} failed, and is tried again: RecursionError: deep" in said


def test_the_page_has_counters_budgets_and_when_they_were_enforced(tmp_path):
    found = service(tmp_path)
    found.map.synced_at = 7.0
    text = found.text()
    assert "inference_usage_store_up 1" in text and "inference_usage_budgets_timestamp_seconds 7" in text
    assert "inference_usage_budget_tokens" in text
    assert "budgets_timestamp" not in service(tmp_path, budgets={}).text()


def test_a_database_that_is_not_there_yet_is_waited_for(tmp_path, monkeypatch):
    found, answers = service(tmp_path), iter([OSError("away"), 0.0])

    def load():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(found, "_load", load)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(
        "ansible_collections.baremetal.inference.plugins.module_utils.usage.service_host.Loop.start", lambda _loop: None
    )
    found.start()
    assert next(answers, None) is None
