# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An instance that nobody drained stops behind a real HAProxy under load: no request is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.gateways import HAPROXY, KEY, gateway, until
from tests.integration.gateway_engines import Engine, engine

SCRIPT = Path(__file__).resolve().parents[2] / "roles/vllm/files/vllm-drain.py"
# Runs the program for an instance whose files are not in /etc/vllm, as if this host were a gateway too.
STOP = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("vllm_drain", sys.argv[1])
drain = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = drain
spec.loader.exec_module(drain)
drain.GATEWAY = "/"
print(drain.stop_in_background(drain.Instance("127.0.0.1", int(sys.argv[2]), False), 30.0, 2.0))
"""

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


class Load:
    """Clients that request streams, one after the other, until they are told to stop."""

    def __init__(self, found, clients):
        self.found, self.statuses, self.short, self.on = found, [], 0, True
        self.threads = [threading.Thread(target=self.ask) for _client in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while self.on:
            status, _headers, body = self.found.ask("POST", "/v1/chat/completions", KEY, b'{"stream": true}')
            self.statuses.append(status)
            self.short += body.count(b"data:") != 10

    def end(self):
        self.on = False
        for thread in self.threads:
            thread.join(30)


class LateEngine(Engine):
    """Accepts what arrives after SIGTERM, and never answers it, like vLLM."""

    def do_GET(self):  # noqa: N802
        server = self.server
        if server.stopped and self.path not in ("/health", "/metrics"):
            server.late.append(self.path)
            server.freed.wait(600)
        with server.counting:
            server.metrics["vllm:num_requests_running"] += 1
        try:
            super().do_GET()
        finally:
            with server.counting:
                server.metrics["vllm:num_requests_running"] -= 1

    do_POST = do_GET  # noqa: N815

    def send(self, text, status=200):
        if self.path == "/metrics":
            # Without the request for the figures themselves.
            running = self.server.metrics["vllm:num_requests_running"] - 1
            text = f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} 0.0\n'
        super().send(text, status)


def shared_engine():
    """Return an engine whose port may be shared, as vLLM's is."""
    found = engine()
    server = found.__enter__()
    server.RequestHandlerClass = LateEngine
    server.stopped, server.late, server.counting = False, [], threading.Lock()
    server.metrics["vllm:num_requests_running"] = 0.0
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return found, server


def test_no_request_fails_when_an_instance_stops_under_load(tmp_path):
    (one, leaving), (two, staying) = shared_engine(), shared_engine()
    try:
        with gateway(tmp_path, [leaving.server_port, staying.server_port]) as found:
            until(lambda: found.state("gw--chat-1") == "UP" and found.state("gw--chat-2") == "UP")
            load = Load(found, 16)
            time.sleep(2)
            assert leaving.asked and staying.asked
            stop = subprocess.Popen(
                [sys.executable, "-c", STOP, str(SCRIPT), str(leaving.server_port)], stdout=subprocess.PIPE, text=True
            )
            until(lambda: found.state("gw--chat-1").startswith("NOLB"), 20)
            said = stop.communicate(timeout=40)[0]
            # SIGTERM: from here on it answers /health alone, until it closes its port.
            leaving.stopped = True
            time.sleep(4)
            load.end()
            assert not leaving.late and found.state("gw--chat-1").startswith("NOLB")
            assert set(load.statuses) == {200} and not load.short and len(load.statuses) > 50
            assert said == "Stopping: no request runs; told 1 gateways\n"
    finally:
        one.__exit__(None, None, None)
        two.__exit__(None, None, None)
    # The process in the background ends with the port.
    with socket.socket() as probe:
        until(lambda: probe.connect_ex(("127.0.0.1", leaving.server_port)), 10)
