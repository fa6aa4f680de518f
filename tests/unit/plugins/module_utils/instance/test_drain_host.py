# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit does before systemd stops vLLM."""

from __future__ import annotations

import http.client
import os
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import drain_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Listening, listening_of

from tests.fakes.stopping_engine import stopping_engine


def drain_of(engine, run, host="127.0.0.1", tls=False):
    tls = "ssl-certfile: /x\n" if tls else ""
    return drain_host.Drain(listening_of(f"host: '{host}'\nport: {engine.port}\n{tls}"), str(run))


class Stop(threading.Thread):
    """A stop in the background."""

    def __init__(self, engine, run, seconds=10.0, notice=1.0, host="127.0.0.1", tls=False):
        super().__init__(daemon=True)
        self.drain = drain_of(engine, run, host, tls)
        self.seconds, self.notice, self.said = seconds, notice, ""
        self.began = time.monotonic()
        self.start()

    def run(self):
        self.said = self.drain.run(self.seconds, self.notice)
        self.took = time.monotonic() - self.began

    def end(self):
        """Return what it says when systemd may send SIGTERM."""
        self.join(60)
        assert not self.is_alive()
        return self.said


def ask(engine, path, host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, engine.port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def behind_gateway(monkeypatch):
    """This host is a gateway too, so that instances on loopback are behind it."""
    monkeypatch.setattr(drain_host, "GATEWAY", "/")


@pytest.mark.parametrize(("host", "at"), [
    ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("::", "::1"),
])  # fmt: skip
def test_health_turns_red_while_everything_else_is_served(tmp_path, host, at):
    with stopping_engine(tmp_path, host) as engine:
        engine.takes = 0.0
        assert ask(engine, "/health", at)[0] == 200
        # So long, a busy machine may take for the requests below.
        stop = Stop(engine, tmp_path, notice=3.0, host=host)
        until(lambda: ask(engine, "/health", at)[0] == 404)
        assert [ask(engine, "/health", at)[0] for _time in range(10)] == [404] * 10
        assert [ask(engine, "/slow", at) for _time in range(10)] == [(200, b"ok")] * 10
        assert stop.end() == "Stopping: no request runs" and stop.took > 3.0
        # After SIGTERM vLLM would accept requests that it never answers.
        engine.stopped = True
        assert ask(engine, "/health", at)[0] == 404 and ask(engine, "/slow", at)[0] == 503
        assert ask(engine, "/metrics", at)[0] == 200 and not engine.late


def test_while_a_host_is_missing_requests_are_refused_and_may_come_again(tmp_path):
    with stopping_engine(tmp_path) as engine:
        engine.takes = 0.0
        (tmp_path / "ready").rename(tmp_path / "withdrawn")
        assert [ask(engine, path)[0] for path in ("/health", "/slow", "/metrics")] == [503, 503, 200]
        assert engine.asked == []
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
        connection.request("GET", "/slow")
        assert connection.getresponse().headers["retry-after"] == "5"
        (tmp_path / "withdrawn").rename(tmp_path / "ready")
        assert [ask(engine, path)[0] for path in ("/health", "/slow")] == [200, 200]


def test_a_stop_waits_for_requests_from_before_and_after_its_beginning(tmp_path):
    with stopping_engine(tmp_path) as engine:
        found = []
        engine.takes = 2.5
        before = threading.Thread(target=lambda: found.append(ask(engine, "/slow")[0]))
        before.start()
        until(lambda: engine.running == 1)
        stop = Stop(engine, tmp_path, notice=0.1)
        until(lambda: ask(engine, "/health")[0] == 404)
        during = threading.Thread(target=lambda: found.append(ask(engine, "/slow")[0]))
        during.start()
        assert stop.end() == "Stopping: no request runs"
        before.join()
        during.join()
        assert found == [200, 200] and stop.took > 2.5


def test_an_answer_that_its_client_still_reads_is_a_running_request(tmp_path):
    with stopping_engine(tmp_path) as engine:
        engine.metrics = False
        reading = threading.Thread(target=ask, args=(engine, "/v1/chat/completions"))
        reading.start()
        until(lambda: engine.running == 1)
        # Ten events, 0.1 s each; vLLM's own figures say nothing.
        assert Stop(engine, tmp_path, notice=0.0).end() == "Stopping: no request runs"
        assert engine.running == 0


def test_a_request_without_an_end_is_left_after_the_time(tmp_path):
    with stopping_engine(tmp_path) as engine:
        engine.running, engine.waiting = 3, 4
        stop = Stop(engine, tmp_path, seconds=0.5, notice=0.2)
        assert stop.end() == "Stopping: 7 requests still run after 0.5 s"
        assert stop.took < 30 and ask(engine, "/slow")[0] == 503


@pytest.mark.parametrize(("host", "gateway", "expected"), [
    ("127.0.0.1", "/nothing/here", False), ("127.0.0.1", "/", True), ("10.0.0.1", "/nothing/here", True),
    ("::1", "/nothing/here", False), ("a-name", "/nothing/here", True),
])  # fmt: skip
def test_who_is_behind_a_gateway(monkeypatch, tmp_path, host, gateway, expected):
    monkeypatch.setattr(drain_host, "GATEWAY", gateway)
    assert drain_host.Drain(listening_of(f"host: '{host}'\n"), str(tmp_path)).behind_gateway() is expected


def test_without_a_gateway_an_idle_instance_stops_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(drain_host, "GATEWAY", "/nothing/here")
    with stopping_engine(tmp_path) as engine:
        stop = Stop(engine, tmp_path, notice=20)
        assert stop.end() == "Stopping: no request runs" and stop.took < 15


def test_an_instance_from_before_the_middleware_is_waited_for(tmp_path):
    with stopping_engine() as engine:
        engine.takes = 1.5
        asking = threading.Thread(target=ask, args=(engine, "/slow"))
        asking.start()
        until(lambda: engine.running == 1)
        said = Stop(engine, tmp_path, notice=20).end()
        assert said == "Stopping: no request runs; gateways were not told: GET /health still answers 200"
        asking.join()
        assert not asking.is_alive()


def test_a_unit_without_a_directory_says_so(tmp_path):
    with stopping_engine() as engine:
        said = Stop(engine, tmp_path / "absent", notice=20).end()
    assert said == "Stopping: no request runs; gateways were not told: No such file or directory"


def test_an_engine_without_figures_gets_its_time(tmp_path):
    with stopping_engine() as engine:
        engine.metrics = False
        said = Stop(engine, tmp_path, seconds=0.5, notice=0.1).end()
    assert said.startswith("Stopping: vLLM does not report whether requests run after 0.5 s")


def test_a_moment_without_requests_is_no_end(tmp_path, monkeypatch):
    monkeypatch.setattr(drain_host, "SETTLE", 0.01)
    monkeypatch.setattr(drain_host, "PAUSE", 0.02)
    found = drain_host.Drain(Listening("127.0.0.1", 1), str(tmp_path))
    loads = iter([0])
    monkeypatch.setattr(found, "_load", lambda: next(loads, 3))
    assert found._finish(0.5) == "Stopping: 3 requests still run after 0.5 s"


def test_new_requests_are_served_until_the_engine_was_idle_for_a_while(tmp_path, monkeypatch):
    """A request that is on its way is counted only once its first bytes are there."""
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(drain_host, "time", clock)
    found = drain_host.Drain(Listening("127.0.0.1", 1), str(tmp_path))
    refused = []

    def load():
        if (tmp_path / "closed").exists():
            refused.append(clock.now)
        # One comes after half a second, and runs until 103.
        return int(100.5 < clock.now < 103.0)

    monkeypatch.setattr(found, "_load", load)
    assert found._finish(60) == "Stopping: no request runs"
    assert refused and refused[0] >= 103.0 + drain_host.SETTLE


def test_an_engine_that_has_gone_is_waited_for_by_nobody(tmp_path):
    with stopping_engine() as engine:
        port = engine.port
    said = drain_host.Drain(Listening("127.0.0.1", port), str(tmp_path)).run(20, 20)
    assert said == "Stopping: no request runs; gateways were not told: Connection refused"


def test_an_instance_with_tls_tells_gateways_too(tmp_path):
    names = [str(tmp_path / name) for name in ("key.pem", "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*command, "-keyout", names[0], "-out", names[1]], check=True, capture_output=True)
    with stopping_engine(tmp_path, ssl_keyfile=names[0], ssl_certfile=names[1]) as engine:
        assert Stop(engine, tmp_path, notice=0.1, tls=True).end() == "Stopping: no request runs"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("headless: true\nport: 8000\n", ""),
        ("port: x\n", "Stopping: requests are not waited for: {}/chat.yaml: port: found 'x'"),
        (
            None,
            "Stopping: requests are not waited for: instance chat is not installed on this host: {}/chat.yaml is",
        ),
    ],
)
def test_an_instance_that_cannot_be_asked_is_not_waited_for(monkeypatch, tmp_path, config, expected):
    monkeypatch.setattr(drain_host, "CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("MAINPID", "1")
    if config:
        (tmp_path / "chat.yaml").write_text(config)
    found = drain_host.drain("chat", 60, 3)
    assert found.startswith(expected.format(tmp_path)) and bool(found) == bool(expected)


@pytest.mark.parametrize("odd", ["link", "FIFO", "directory"])
def test_no_mark_of_somebody_else_is_followed_or_waited_for(tmp_path, odd):
    """The directory belongs to vLLM's user, and root stops containers."""
    run, target = tmp_path / "run", tmp_path / "nologin"
    run.mkdir()
    make = {"link": lambda path: path.symlink_to(target), "FIFO": os.mkfifo, "directory": os.mkdir}[odd]
    make(run / "stopping")
    make(run / "closed")
    with stopping_engine() as engine:
        said = Stop(engine, run, seconds=0.5, notice=0.1).end()
    assert said.startswith("Stopping: no request runs; gateways were not told: ")
    assert not target.exists()


def test_nothing_is_done_once_vllm_has_ended(monkeypatch):
    monkeypatch.delenv("MAINPID", raising=False)
    assert drain_host.drain("absent", 60, 3) == ""
