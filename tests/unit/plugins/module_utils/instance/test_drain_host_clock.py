# SPDX-License-Identifier: GPL-3.0-or-later
"""How a stop waits for requests, by a clock of its own: test_drain_host.py has the same with real engines."""

from __future__ import annotations

import http.client
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import drain_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import listening_of

SILENT, REFUSED = OSError("timed out"), ConnectionRefusedError()


@pytest.fixture
def stop(tmp_path, monkeypatch):
    """Stop an engine that reports these numbers of requests, the last one from then on.

    Returns the line for the journal, the seconds, and whether new requests were refused while it still looked.
    """
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(drain_host, "time", SimpleNamespace(
        monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + seconds)
    ))  # fmt: skip

    def run(*reports, seconds=60.0):
        left, closed = list(reports), []

        def ask(_listening, _method, path, _timeout):
            if path == "/health":
                return SimpleNamespace(headers={}, status=http.client.OK, text="")
            report = left.pop(0) if len(left) > 1 else left[0]
            if (tmp_path / "closed").exists() and not closed:
                closed.append(clock.now)
            clock.now += 0.01
            if isinstance(report, OSError):
                raise report
            text = "" if report is None else f"vllm:num_requests_running {report}\nvllm:num_requests_waiting 0\n"
            return SimpleNamespace(headers={}, status=http.client.OK, text=text)

        monkeypatch.setattr(drain_host, "ask", ask)
        said = drain_host.Drain(listening_of("host: 127.0.0.1\n"), str(tmp_path)).run(seconds, 0.0)
        return said, clock.now, bool(closed)

    return run


def test_an_idle_engine_is_looked_at_for_a_second_then_closed_then_looked_at_again(stop):
    said, took, closed = stop(0)
    assert said.startswith("Stopping: no request runs") and 1.0 <= took < 1.5 and closed


def test_an_engine_that_does_not_answer_is_busy(stop):
    said, took, _closed = stop(SILENT, seconds=5.0)
    assert said.startswith("Stopping: vLLM does not report whether requests run after 5 s") and took >= 5.0
    assert stop(SILENT, SILENT, SILENT, 0)[0].startswith("Stopping: no request runs")


def test_an_engine_that_is_gone_has_no_requests(stop):
    assert stop(REFUSED)[0].startswith("Stopping: no request runs")


def test_a_request_that_came_before_new_ones_were_refused_is_waited_for(stop):
    # Idle for a second, then closed, and one has slipped in.
    idle = [0] * 6
    said, took, _closed = stop(*idle, 1, 1, 1, 1, 1, 0)
    assert said.startswith("Stopping: no request runs") and took > 2.0
    said, _took, closed = stop(*idle, 1, seconds=4.0)
    assert said.startswith("Stopping: 1 requests still run after 4 s") and closed
