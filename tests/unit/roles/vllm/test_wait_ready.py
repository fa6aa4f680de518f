# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit asks before it counts as active."""

from __future__ import annotations

import importlib.util
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "roles/vllm/files/vllm-wait-ready.py"
SPEC = importlib.util.spec_from_file_location("wait_ready", SCRIPT)
wait_ready = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(wait_ready)


class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_args):
        """Quiet."""


@pytest.fixture(params=[False, True], ids=["http", "https"])
def engine(request, tmp_path):
    """A server that answers /health, and its configuration as vLLM has it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    server.status = 200
    config = f"host: 0.0.0.0\nport: {server.server_port}\n"
    if request.param:
        words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=chat.example.net"
        command = ["openssl", *words.split(), "-keyout", tmp_path / "key", "-out", tmp_path / "crt"]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        config += f"ssl-certfile: {tmp_path}/crt\nssl-keyfile: {tmp_path}/key\n"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, config
    server.shutdown()
    server.server_close()


def test_an_engine_is_asked_as_it_listens(engine):
    server, config = engine
    where = wait_ready.address(config)
    assert wait_ready.healthy(*where)
    server.status = 503
    assert not wait_ready.healthy(*where)


def test_what_is_no_http_is_not_healthy():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _address = listener.accept()
            connection.recv(1000)
            connection.sendall(b"no http at all\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert not wait_ready.healthy("127.0.0.1", listener.getsockname()[1], False)
