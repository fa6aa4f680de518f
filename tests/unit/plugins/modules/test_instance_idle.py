# SPDX-License-Identifier: GPL-3.0-or-later
"""instance_idle in its own process, with an engine on loopback and a systemctl of the test."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.wheelhouse import run_module


class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        text = self.server.texts.pop(0) if len(self.server.texts) > 1 else self.server.texts[0]
        self.send_response(200 if text else 500)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args):
        pass


def gauges(running, waiting=0):
    return f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} {waiting}\n'


@contextlib.contextmanager
def engine(*texts):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.texts, server.asked = list(texts), 0
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A directory with the files of the instance chat, and with what systemctl says of its unit in ``active``."""
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "ActiveState=$(cat "$(dirname "$0")/active")"\n')
    (tmp_path / "systemctl").chmod(0o755)
    (tmp_path / "active").write_text("active")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def run(host, port, **arguments):
    (host / "chat.yaml").write_text(f"host: 127.0.0.1\nport: {port}\nmodel: m\n")
    result = run_module("instance_idle", instance="chat", config_dir=str(host), **{"settle": 0, **arguments})
    assert not result.get("changed")
    return result


def test_it_waits_until_nothing_runs_or_waits(host):
    with engine(gauges(2, 1), gauges(0, 1), gauges(0)) as server:
        result = run(host, server.server_port, timeout=60)
        assert (result["idle"], result["asked"], result["running"], result["waiting"]) == (True, True, 0, 0)
        assert server.asked == 3


def test_it_has_to_stay_idle(host):
    with engine(gauges(0), gauges(1), gauges(0)) as server:
        result = run(host, server.server_port, timeout=60, settle=0.5)
        assert result["idle"] and result["waited_s"] >= 0.5 and server.asked >= 4


def test_one_that_stays_busy_is_no_failure(host):
    with engine(gauges(3, 4)) as server:
        result = run(host, server.server_port, timeout=0.5)
        assert result["rc"] == 0 and result["waited_s"] >= 0.5
        assert (result["idle"], result["running"], result["waiting"]) == (False, 3, 4)


def test_in_check_mode_it_looks_once(host):
    with engine(gauges(3), gauges(0)) as server:
        assert not run(host, server.server_port, timeout=60, _ansible_check_mode=True)["idle"] and server.asked == 1


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_unit_that_is_not_active_has_nothing_to_do(host, state):
    (host / "active").write_text(state)
    result = run_module("instance_idle", instance="chat", config_dir=str(host / "nowhere"))
    assert (result["idle"], result["asked"], result["waited_s"]) == (True, False, 0)


def test_one_that_is_starting_and_does_not_listen_yet_has_nothing_to_do(host):
    (host / "active").write_text("activating")
    with engine("") as server:
        port = server.server_port
    result = run(host, port)
    assert result["idle"] and result["asked"] and "connection refused" in result["problem"]


def test_what_is_not_known_is_not_idle(host):
    with engine("") as server:
        result = run(host, server.server_port, timeout=0)
        assert not result["idle"] and result["problem"] == "GET /metrics answered 500"


def test_files_that_cannot_be_used_are_told_of(host):
    result = run_module("instance_idle", instance="chat", config_dir=str(host / "nowhere"))
    assert result["rc"] and "runs, but " in result["msg"] and "chat.yaml is not there" in result["msg"]
    result = run(host, "x")
    assert result["rc"] and "port: found 'x', expected a number from 1 to 65535" in result["msg"]


def test_systemd_that_does_not_answer_is_told_of(host):
    (host / "systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    result = run(host, 8000)
    assert result["rc"] and "systemctl show vllm@chat.service: no bus" in result["msg"]
