# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent: what engines and HAProxy answer, whatever that is."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import threading
import time
from unittest import mock

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import agent_host as agent
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.places import Places
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.verdict import Watched
from ansible_collections.baremetal.inference.plugins.module_utils.instance.api_host import LateError

from tests.fakes.gateways import free_port

STAT = "# pxname,svname,status,hrsp_5xx,bout,check_health,check_rise,\n"


def watch_of(directory, answer, monkeypatch, **servers):
    """Return a watch of HAProxy whose counters are those of ``answer``, and what it watches."""
    named = {name: {"name": name, "service": service, "model": "m"} for name, service in servers.items()}
    watched = {name: Watched(60, 60, 5, verdict="up") for name in named}
    places = {"stats": str(directory / "stats"), "unusable": str(directory / "file"), "stops": ""}
    config = {"servers": named, "interval": 2, "min_available": 1, **places}
    monkeypatch.setattr(agent, "read_counters", lambda _path: answer[0])
    return agent.HaproxyWatch(config, watched), watched


def rows(*servers):
    lines = [f"chat,{name},{status},{errors},9,{(*health, 4)[0]},2,\n" for name, status, errors, *health in servers]
    return STAT + "".join(lines) + "\n"


class TestHaproxyWatch:
    def test_a_new_worker_is_noticed(self, tmp_path, monkeypatch):
        # Its process is there while it has requests.
        answer = [f"Pid: {os.getpid()}\n"]

        def ask(_path, command, *_seconds):
            assert command == "show info"
            if not answer[0]:
                raise ConnectionRefusedError
            return answer[0]

        monkeypatch.setattr(agent, "ask_root", ask)
        found, watched = watch_of(tmp_path, [""], monkeypatch, a="chat", b="chat")
        places = watched["a"].places = Places(16, 16)
        # It ran before the agent, is the same, does not answer, says nothing; two at the same time ask once.
        with subprocess.Popen(["true"]) as ended:
            pass
        first, other = answer[0], f"Pid: {ended.pid}\n"
        for now, text in ((1, first), (2, first), (3, ""), (4, "Pid: x\n"), (4.05, other)):
            answer[0] = text
            found.notice_reload(now)
            assert places.limit(now) == 16
        found.notice_reload(5)
        assert [places.limit(now) for now in (5, 8, 11)] == [1, 8, 16]
        # After a restart the engine has no requests of the worker before.
        answer[0] = first
        found.notice_reload(20)
        assert (places.limit(20), found.worker) == (16, str(os.getpid()))
        # Of another user, as HAProxy is for the agent.
        monkeypatch.setattr(os, "kill", mock.Mock(side_effect=PermissionError))
        answer[0] = other
        found.notice_reload(30)
        assert places.limit(30) == 1

    def test_a_server_that_refuses_gives_way_to_one_that_serves(self, tmp_path, monkeypatch):
        answer = [rows(("a", "UP", 0), ("b", "UP", 0))]
        found, watched = watch_of(tmp_path, answer, monkeypatch, a="chat", b="chat", c="other")
        watched["a"].refusal = watched["c"].refusal = "x"
        found.check(0)
        assert [watched[name].replaceable for name in "abc"] == [True, True, False]
        for status in ("DOWN", "DRAIN", "MAINT", "NOLB", "DOWN (agent)"):
            answer[0] = rows(("a", "DOWN (agent)", 0), ("b", status, 0))
            found.check(2)
            assert not watched["a"].replaceable
        watched["b"].refusal = "y"
        answer[0] = rows(("a", "UP", 0), ("b", "UP 1/3", 0))
        found.check(4)
        assert watched["a"].answer == watched["b"].answer == "up"

    def sick_fleet(self, tmp_path, monkeypatch, sick, answer=None, min_available=1):
        names = "abc"
        answer = answer or [rows(*((name, "UP", 0) for name in names))]
        found, watched = watch_of(tmp_path, answer, monkeypatch, **dict.fromkeys(names, "chat"))
        found.services.min_available = min_available
        for name, reason in sick.items():
            watched[name].sick = reason
        found.check(0)
        return {name: watched[name].answer for name in names}

    def test_a_sick_server_leaves_while_others_are_there(self, tmp_path, monkeypatch):
        found = self.sick_fleet(tmp_path, monkeypatch, {"b": "isolate_host xid 79 of 0000:5d:00.0: off the bus"})
        assert found == {"a": "up", "b": "down #sick: isolate_host xid 79 of 0000:5d:00.0: off the bus", "c": "up"}

    def test_of_two_sick_servers_of_which_one_may_leave_the_sicker_leaves(self, tmp_path, monkeypatch):
        sick = {"a": "restart_instance xid 39", "b": "isolate_host xid 79"}
        found = self.sick_fleet(tmp_path, monkeypatch, sick, min_available=2)
        assert found["a"] == "up #sick, and the service needs it: restart_instance xid 39"
        assert found["b"].startswith("down #sick")

    def test_of_two_that_are_alike_the_one_that_was_sick_first_leaves(self, tmp_path, monkeypatch):
        found, watched = watch_of(
            tmp_path, [rows(*((name, "UP", 0) for name in "abc"))], monkeypatch, a="s", b="s", c="s"
        )
        found.services.min_available = 2
        for name, since in (("b", 5.0), ("a", 6.0)):
            watched[name].sick, watched[name].sick_since = "reset_chip xid 95", since
        found.check(7)
        assert watched["b"].answer.startswith("down #sick") and watched["a"].answer.startswith("up #sick")

    def test_a_sick_server_waits_until_the_one_that_takes_its_place_is_up(self, tmp_path, monkeypatch):
        answer = [rows(("a", "DOWN (agent)", 0), ("b", "UP", 0))]
        found, watched = watch_of(tmp_path, answer, monkeypatch, a="s", b="s")
        watched["a"].sick, watched["b"].sick = "restart_instance xid 39", "isolate_host xid 64"
        found.check(0)
        assert watched["a"].answer.startswith("up #sick") and watched["b"].answer.startswith("up #sick")
        answer[0] = rows(("a", "UP", 0), ("b", "UP", 0))
        found.check(2)
        assert watched["a"].answer.startswith("up #sick") and watched["b"].answer.startswith("down #sick")
        answer[0] = rows(("a", "UP", 0), ("b", "DOWN (agent)", 0))
        found.check(4)
        assert watched["b"].answer.startswith("down #sick")

    def test_the_last_server_of_a_service_stays_however_sick_it_is(self, tmp_path, monkeypatch):
        answer = [rows(("a", "DRAIN", 0), ("b", "UP", 0), ("c", "DOWN", 0))]
        found = self.sick_fleet(tmp_path, monkeypatch, {"b": "isolate_host xid 79"}, answer)
        assert found["b"].startswith("up #sick, and the service needs it")

    def test_a_server_that_is_stuck_and_sick_is_out_for_being_stuck(self):
        watched = Watched(60, 60, verdict="down #hangs: x", sick="reset_chip", spare=False)
        assert watched.answer == "down #hangs: x"

    def test_the_servers_of_a_group_are_down_together(self, tmp_path, monkeypatch):
        answer = [rows(("a", "UP", 0), ("b", "UP", 0), ("c", "UP", 0))]
        found, watched = watch_of(tmp_path, answer, monkeypatch, a="chat", b="chat", c="chat")
        for name in "ab":
            found.servers[name]["group"] = "a"
        found.check(0)
        assert [watched[name].answer for name in "abc"] == ["up", "up", "up"]
        # A single failed check leaves a server in service.
        answer[0] = rows(("a", "UP", 0), ("b", "UP 2/3", 0, 3), ("c", "UP", 0))
        found.check(2)
        assert watched["a"].answer == "up"
        # The agent's answer takes a out too; only b's own check counts for a, so both come back.
        for lost in (("b", "DOWN", 0, 0), ("b", "NOLB", 0, 4)):
            answer[0] = rows(("a", "DOWN (agent)", 0), lost, ("c", "UP", 0))
            found.check(4)
            assert watched["a"].answer == "down #b, which serves together with it, is missing"
            assert [watched[name].answer for name in "bc"] == ["up", "up"]
        answer[0] = rows(("a", "DOWN (agent)", 0), ("b", "UP 1/2", 0, 3), ("c", "UP", 0))
        found.check(6)
        assert watched["a"].answer == "up"

    def test_an_engine_that_hangs_says_so_although_its_group_is_incomplete(self):
        assert Watched(60, 60, verdict="down #hangs: x", incomplete="b").answer == "down #hangs: x"

    def test_errors_are_counted(self, tmp_path, monkeypatch):
        answer = [rows(("a", "UP", 7))]
        found, watched = watch_of(tmp_path, answer, monkeypatch, a="chat")
        found.check(0)
        answer[0] = rows(("a", "UP", 12))
        found.check(2)
        assert watched["a"].errors == ((2, 5),)

    def test_the_file_for_keepalived_is_patient(self, tmp_path, monkeypatch):
        answer = [rows(("a", "UP", 0))]
        found, _watched = watch_of(tmp_path, answer, monkeypatch, a="chat")
        found.check(0)
        assert (tmp_path / "file").read_text() == "0\n"
        answer[0] = rows(("a", "DOWN", 0))
        for now in range(2, 12, 2):
            found.check(now)
            assert (tmp_path / "file").read_text() == "0\n"
        found.check(12)
        assert (tmp_path / "file").read_text() == "1\n"
        answer[0] = rows(("a", "UP", 0))
        found.check(14)
        found.check(16)
        assert (tmp_path / "file").read_text() == "0\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@contextlib.contextmanager
def serving(answer):
    """A server that sends ``answer(connection)`` to whoever connects."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
        listener.listen()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _address = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(65536)
                        answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def drip(connection):
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def test_an_answer_that_comes_byte_by_byte_holds_nothing_up():
    began = time.monotonic()
    with serving(drip) as address, pytest.raises(TimeoutError):
        agent.ask(address, "GET", "/metrics", None, 0.4)
    assert time.monotonic() - began < 30


def test_a_brace_in_the_name_of_a_model_hides_no_metric():
    page = b'vllm:num_requests_running{model_name="a}b"} 3\nvllm:generation_tokens_total{model_name="a}b"} 7\n'

    def answer(connection):
        connection.sendall(b"HTTP/1.0 200 OK\r\nunhealthy: xid 79\r\n\r\n" + page)

    watched = Watched(60, 60, moved_at=time.monotonic(), proven_at=time.monotonic())
    with serving(answer) as address:
        agent.check_instance(address, "m", watched)
    assert 7.0 in watched.work and watched.sick == "xid 79"


@pytest.mark.parametrize(
    ("status", "expected"), [(200, "up"), (400, "up"), (401, "up"), (404, "up"), (500, "down"), (503, "down")]
)
def test_an_engine_that_refuses_the_request_for_a_token_is_alive(monkeypatch, status, expected):
    """It may want a key, or serve another model: that is the fault of the request."""
    page = "vllm:num_requests_running 0\n"
    monkeypatch.setattr(agent, "ask", lambda _at, method, *_more: (200 if method == "GET" else status, page, ""))
    watched = Watched(60, 60, proven_at=time.monotonic() - 100, replaceable=True)
    agent.check_instance("a", "m", watched)
    assert watched.answer.startswith(expected)
    assert watched.refusal == ("" if expected == "up" else f"the request for a token was answered with HTTP {status}")


@pytest.mark.parametrize(
    ("error", "expected"), [(LateError("late"), "down #hangs: no answer"), (ConnectionRefusedError(), "up")]
)
def test_an_engine_that_gives_no_answer_hangs_and_one_that_has_ended_does_not(monkeypatch, error, expected):
    """HAProxy's own check takes out what has ended; cutting requests is for an engine that hangs."""
    monkeypatch.setattr(agent, "ask", mock.Mock(side_effect=error))
    watched = Watched(60, 60, verdict="up", heard_at=time.monotonic() - 121)
    agent.check_instance("a", "m", watched)
    assert watched.answer.startswith(expected)


@pytest.mark.parametrize(("own", "bound"), [(None, 6), (6, 2)])
def test_a_bound_stays_until_haproxy_has_told_what_is_there(own, bound):
    page = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 4\nvllm:generation_tokens_total 7\n"
    watched = Watched(60, 60, places=Places(6, 6, waited=4), own=own)
    with serving(lambda connection: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + page)) as address:
        agent.check_instance(address, "m", watched)
    assert watched.places.bound == bound


PIECES = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 500 \xff\x00\r\n", b"HTTP/1.1 99999999999 x\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n", b"Content-Length: " + b"9" * 5000 + b"\r\n", b"Content-Length: \xb2\r\n",
    b"Transfer-Encoding: chunked\r\n", b"\r\n", b"zz\r\n", b"ffffffffffffffffffff\r\n",
    b"vllm:num_requests_running{x=\"\x1b[31m\"} 1\n", b"vllm:num_requests_running nan\n",
    b"vllm:prompt_tokens_total 1e999\n",
    b"vllm:prompt_tokens_total \xd9\xa1\n", b"\x00" * 50, b"{" * 200,
)  # fmt: skip


def test_no_answer_of_an_engine_ends_its_check():
    chosen = random.Random(20261123)

    def answer(connection):
        connection.sendall(b"".join(chosen.choices(PIECES, k=chosen.randint(0, 12))))

    watched = Watched(0.5, 0.001, 1, replaceable=True)
    with serving(answer) as address:
        for _n in range(150):
            watched.counts(chosen.randint(0, 9), 0, time.monotonic())
            agent.check_instance(address, "m", watched)
            assert watched.answer.isprintable() and watched.answer.isascii() and len(watched.answer) < 300


def damaged(chosen, text):
    """Return a text with a few of its parts cut, doubled or replaced."""
    for _n in range(chosen.randint(1, 4)):
        at, length = chosen.randrange(len(text) + 1), chosen.randint(0, 12)
        text = (
            text[:at]
            + chosen.choice(["", text[at : at + length] * 2, ",", '"', "\n", "\0", "²", "-1", "\ud800"])
            + text[at + length :]
        )
    return text


def test_no_counters_of_haproxy_end_the_watch(tmp_path, monkeypatch):
    chosen = random.Random(20261123)
    answer = [""]
    found, watched = watch_of(tmp_path, answer, monkeypatch, a="chat", b="chat")
    for now in range(3000):
        answer[0] = damaged(chosen, rows(("a", "UP", 3), ("b", "DOWN (agent)", 0)))
        found.check(now)
        assert {each.answer for each in watched.values()} == {"up"}
        assert (tmp_path / "file").read_text() in ("0\n", "1\n")


def test_no_question_ends_the_agent(capfd):
    chosen = random.Random(20261123)
    config = {
        "port": free_port(), "interval": 60, "stuck_after": 1, "probe_after": 0, "error_limit": 0, "stats": "/none",
        "min_available": 1, "unusable": "", "stops": "",
        "servers": {f"127.0.0.1:{free_port()}": {"name": "a", "service": "s", "model": "m"}},
    }  # fmt: skip
    with agent.Agent(config) as found:
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        found.watched[next(iter(config["servers"]))].verdict = "up"
        for number in range(100):
            with socket.create_connection(("127.0.0.1", config["port"]), timeout=10) as connection:
                connection.sendall(chosen.randbytes(chosen.randint(0, 300)).replace(b"\n", b""))
                if number % 3:
                    connection.sendall(b"\n")
                    with contextlib.suppress(ConnectionResetError):
                        assert connection.recv(64) == b"\n"
        with socket.create_connection(("127.0.0.1", config["port"]), timeout=10) as connection:
            connection.sendall(next(iter(config["servers"])).encode() + b"\n")
            assert connection.recv(64) == b"up\n"
        found.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def test_whatever_a_check_raises_the_next_one_follows_and_the_page_says_which_worked(monkeypatch, capsys):
    checks = threading.Semaphore(0)

    def deep(*_arguments):
        checks.release()
        raise RecursionError("deep")

    monkeypatch.setattr(agent, "check_instance", deep)
    config = {
        "port": free_port(), "interval": 0.01, "stuck_after": 1, "probe_after": 0, "error_limit": 0, "stats": "/none",
        "min_available": 1, "unusable": "", "stops": "",
        "servers": {"127.0.0.1:1": {"name": "a", "service": "s", "model": "m"}},
    }  # fmt: skip
    with agent.Agent(config) as found:
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        assert all(checks.acquire(timeout=60) for _time in range(5))
        with socket.create_connection(("127.0.0.1", config["port"]), timeout=10) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: a\r\n\r\n")
            page = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        found.shutdown()
    assert page.startswith("HTTP/1.0 200") and 'timestamp_seconds{of="haproxy"}' in page and 'of="a"' not in page
    assert "a failed, and is tried again: RecursionError: deep" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "line"), [
    ("7\n", "inference_gateway_slow_readers_ended_total 7\n"), ("", ""), ("7\n8\n", ""), ("x\n", ""), (None, ""),
])  # fmt: skip
def test_the_page_says_how_many_slow_readers_were_ended(tmp_path, text, line):
    if text is not None:
        (tmp_path / "ended").write_text(text)
    config = {
        "port": free_port(), "interval": 600, "stuck_after": 1, "probe_after": 0, "error_limit": 0, "stats": "/none",
        "min_available": 1, "unusable": "", "stops": "", "servers": {}, "readers": str(tmp_path / "ended"),
    }  # fmt: skip
    with agent.Agent(config) as found:
        page = found.page()
    assert page.endswith(line) and ("slow_readers" in page) == bool(line)


def test_the_number_of_replicas_has_its_own_pace(monkeypatch):
    # The lease of the gateway that decides is six seconds, and the checks may be a minute apart.
    steps = threading.Semaphore(0)
    monkeypatch.setattr(agent.Scaler, "step", lambda _scaler: steps.release())
    monkeypatch.setattr(agent, "INTERVAL", 0.01)
    config = {
        "port": free_port(), "interval": 600, "stuck_after": 1, "probe_after": 0, "error_limit": 0, "stats": "/none",
        "min_available": 1, "unusable": "", "stops": "", "servers": {}, "scale": {"services": {}, "doors": {}},
    }  # fmt: skip
    with agent.Agent(config):
        assert all(steps.acquire(timeout=60) for _time in range(5))


def test_a_silent_haproxy_is_noticed_before_the_shared_address_begins_to_count_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(agent, "ask_root", lambda *given: asked.append(given) or "")
    agent.read_counters("s")
    ((_path, _command, part, whole),) = asked
    # With the shortest interval between two checks, a second.
    assert part <= 3 * 1 + 2 and whole <= 10
