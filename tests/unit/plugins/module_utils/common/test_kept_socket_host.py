# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's protocol for kept sockets, with a stand-in for systemd that holds the copy and passes it on."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.kept_socket_host import listen

from tests.fakes.gateways import free_port

CODE = """
import os, sys, time
from ansible_collections.baremetal.inference.plugins.module_utils.common.kept_socket_host import listen
if os.environ.get("LISTEN_PID") == "me":
    os.environ["LISTEN_PID"] = str(os.getpid())
opened = listen("127.0.0.1", int(sys.argv[1]))
connection = opened.accept()[0]
connection.sendall(b"here")
os.kill(os.getpid(), 9)
"""


def received(manager):
    """Return the text and the descriptors of the next message to systemd."""
    text, rights, _flags, _from = manager.recvmsg(4096, socket.CMSG_SPACE(64))
    numbers = array.array("i")
    for _level, _kind, data in rights:
        numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return text.decode(), list(numbers)


def service(port, notify, kept=None):
    """Start the service as systemd does, with the kept socket as descriptor 3."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NOTIFY_SOCKET": notify}
    words = [sys.executable, "-c", CODE, str(port)]
    if kept is None:
        return subprocess.Popen(words, env=environment)
    environment |= {"LISTEN_FDS": "1", "LISTEN_PID": "me"}
    return subprocess.Popen(words, env=environment, preexec_fn=lambda: os.dup2(kept, 3), pass_fds=[3])


def answer(port):
    with socket.create_connection(("127.0.0.1", port), 20) as opened:
        return opened.recv(10)


def test_the_port_stays_taken_while_the_service_is_down_and_the_next_process_gets_it(tmp_path):
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        with service(port, str(tmp_path / "notify")) as first:
            assert received(manager) == ("FDSTOREREMOVE=1\nFDNAME=port", [])
            text, (kept,) = received(manager)
            assert text == "FDSTORE=1\nFDNAME=port"
            assert answer(port) == b"here" and first.wait(20) == -9
        # Killed: another user cannot take the port, and no connection is refused.
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind(("127.0.0.1", port))
            stranger.listen()
        with socket.create_connection(("127.0.0.1", port), 20) as waiting, service(port, "", kept) as second:
            assert waiting.recv(10) == b"here" and second.wait(20) == -9
        os.close(kept)


def test_a_kept_socket_of_another_port_is_closed(monkeypatch):
    other, port = free_port(), free_port()
    with socket.socket() as old:
        old.bind(("127.0.0.1", other))
        old.listen()
        monkeypatch.setattr(
            "ansible_collections.baremetal.inference.plugins.module_utils.common.kept_socket_host._kept",
            lambda: [old.dup()],
        )
        with listen("127.0.0.1", port) as opened:
            assert opened.getsockname() == ("127.0.0.1", port)


@pytest.mark.parametrize("count", ["x", "", "-1", "1"])
def test_without_systemd_a_new_one_is_made(monkeypatch, count):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("LISTEN_FDS", count)
    # Of another process: it was inherited.
    monkeypatch.setenv("LISTEN_PID", "1")
    port = free_port()
    with listen("127.0.0.1", port) as opened:
        assert opened.getsockname()[1] == port
