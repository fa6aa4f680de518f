# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit does before systemd stops vLLM."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "roles/vllm/files/vllm-drain.py"
SPEC = importlib.util.spec_from_file_location("vllm_drain", SCRIPT)
drain = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = drain
SPEC.loader.exec_module(drain)


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"ok"
        if self.path == "/metrics":
            body = b"# HELP x y\n" + b"".join(
                b'vllm:num_requests_%s{engine="0",model_name="a {b}"} %f\n' % (kind, self.server.running)
                for kind in (b"running", b"waiting")[: self.server.told]
            )
        elif self.path == "/slow":
            self.server.running += 1
            time.sleep(self.server.takes)
            self.server.running -= 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        """Quiet."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    shared = True

    def server_bind(self):
        if self.shared:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


class Server6(Server):
    address_family = socket.AF_INET6


class Alone(Server):
    shared = False


@contextlib.contextmanager
def engine(kind=Server, host="127.0.0.1"):
    server = kind((host, 0), Engine)
    server.running, server.takes, server.told = 0, 1.0, 2
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Stop(threading.Thread):
    """A stop in the background."""

    def __init__(self, server, seconds=10.0, notice=1.0, host="", tls=False):
        super().__init__(daemon=True)
        self.instance = drain.Instance(host or server.server_address[0], server.server_port, tls)
        self.seconds, self.notice, self.said = seconds, notice, ""
        self.began = time.monotonic()
        self.told = threading.Event()
        self.start()

    def run(self):
        asyncio.run(drain.stop(self.instance, self.seconds, self.notice, self.tell))

    def tell(self, text):
        self.said, self.took = text, time.monotonic() - self.began
        self.told.set()

    def end(self):
        """Return what it tells when systemd may send SIGTERM."""
        assert self.told.wait(30)
        return self.said


def ask(server, path, host="127.0.0.1", headers=None):
    connection = http.client.HTTPConnection(host, server.server_port, timeout=20)
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture(autouse=True)
def behind_gateway(monkeypatch):
    """This host is a gateway too, so that instances on loopback are behind it."""
    monkeypatch.setattr(drain, "GATEWAY", "/")


@pytest.mark.parametrize(("kind", "host", "at"), [
    (Server, "127.0.0.1", "127.0.0.1"), (Server, "0.0.0.0", "127.0.0.1"),
    (Server6, "::1", "::1"), (Server6, "::", "::1"),
])  # fmt: skip
def test_health_turns_red_while_everything_else_is_served(kind, host, at):
    with engine(kind, host) as server:
        assert ask(server, "/health", at)[0] == 200
        stop = Stop(server, host=host)
        time.sleep(0.4)
        assert [ask(server, "/health", at, {"X-Soft-Stop": "404"})[0] for _time in range(10)] == [404] * 10
        assert [ask(server, "/v1/models", at) for _time in range(10)] == [(200, b"ok")] * 10
        assert stop.end() == "Stopping: no request runs; told 1 gateways"
        # After SIGTERM vLLM answers /health with 200 while its port is open.
        assert ask(server, "/health", at)[0] == 404 and ask(server, "/v1/models", at)[0] == 503
    stop.join(10)
    assert not stop.is_alive()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/health", at)


def test_a_stop_waits_for_requests_of_both_ways():
    with engine() as server:
        found = []
        server.takes = 2.5
        before = threading.Thread(target=lambda: found.append(ask(server, "/slow")[0]))
        before.start()
        time.sleep(0.3)
        stop = Stop(server)
        time.sleep(0.5)
        during = threading.Thread(target=lambda: found.append(ask(server, "/slow")[0]))
        during.start()
        assert stop.end().startswith("Stopping: no request runs")
        assert not before.is_alive() and not during.is_alive() and found == [200, 200]
        assert stop.took > 3.0


def test_a_request_without_an_end_is_left_after_the_time():
    with engine() as server:
        server.running = 3
        stop = Stop(server, seconds=0.5, notice=0.2)
        assert stop.end() == "Stopping: 6 requests still run after 0.5 s; no gateway checks it"
        assert stop.took < 3


def test_a_check_without_the_header_gets_three_answers():
    with engine() as server:
        stop = Stop(server, notice=1.0)
        time.sleep(0.3)
        assert ask(server, "/health")[0] == 404
        time.sleep(1.2)
        # The other two have not come yet.
        assert ask(server, "/health")[0] == 404 and ask(server, "/health")[0] == 404
        stop.end()
        assert 1.5 < stop.took < 4


def test_without_a_gateway_an_idle_instance_stops_at_once(monkeypatch):
    monkeypatch.setattr(drain, "GATEWAY", "/nothing/here")
    with engine() as server:
        stop = Stop(server, notice=20)
        assert stop.end() == "Stopping: no request runs" and stop.took < 2.5


def test_an_engine_that_shares_no_port_is_waited_for():
    with engine(Alone) as server:
        server.takes = 1.5
        asking = threading.Thread(target=ask, args=(server, "/slow"))
        asking.start()
        time.sleep(0.3)
        said = Stop(server, notice=20).end()
        assert said.startswith(
            "Stopping: no request runs; gateways were not told, because the port cannot be taken over"
        )
        assert not asking.is_alive()


def test_an_engine_without_metrics_gets_its_time():
    with engine() as server:
        server.told = 0
        assert (
            Stop(server, seconds=0.5, notice=0.1).end().startswith("Stopping: vLLM does not tell whether requests run")
        )


def test_an_engine_that_has_gone_is_waited_for_by_nobody():
    with engine() as server:
        port = server.server_port
    told = []
    asyncio.run(drain.stop(drain.Instance("127.0.0.1", port, False), 20, 20, told.append))
    reason = "the port cannot be taken over (vLLM does not listen)"
    assert told == [f"Stopping: no request runs; gateways were not told, because {reason}"]


@pytest.mark.parametrize(("config", "expected"), [
    ("host: 10.0.0.1\nport: 8000\n", ("10.0.0.1", 8000, False)),
    ("host: '::'\nport: 8000\nssl-certfile: /x\n", ("::", 8000, True)),
    ("headless: true\nhost: 10.0.0.1\nport: 8000\n", None),
    ("model: x\n", None),
])  # fmt: skip
def test_where_an_instance_listens(config, expected):
    assert drain.read_instance(config) == (drain.Instance(*expected) if expected else None)


def test_nothing_is_done_once_vllm_has_ended(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vllm-drain.py", "absent", "60", "3"])
    monkeypatch.delenv("MAINPID", raising=False)
    drain.main()


OTHER_USER = """
import http.server, socket
class Server(http.server.ThreadingHTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
server = Server(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_shares_the_port_of_the_user_of_a_container():
    engine = subprocess.Popen(
        [sys.executable, "-I", "-c", OTHER_USER], stdout=subprocess.PIPE, text=True, user=65534, cwd="/"
    )
    try:
        port = int(engine.stdout.readline())
        with drain.take_over(drain.Instance("127.0.0.1", port, False)) as listener:
            assert os.geteuid() == 0
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                listener.settimeout(5)
                listener.accept()[0].close()
    finally:
        engine.terminate()
        engine.wait(10)
        engine.stdout.close()
