# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's admin socket, in a directory that HAProxy's user can write."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import LockedError, locked
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import admin_socket_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import (
    send_command,
    without_reload,
)


@contextlib.contextmanager
def answering(path, parts):
    """Serve one connection at a socket with the parts of an answer."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)

        def serve():
            with contextlib.suppress(OSError):
                connection, _address = server.accept()
                with connection:
                    connection.recv(1024)
                    for part in parts:
                        connection.sendall(part)

        threading.Thread(target=serve, daemon=True).start()
        yield


def endless():
    while True:
        yield b"x" * 65536


def test_an_answer_is_read_to_its_end(tmp_path):
    with answering(str(tmp_path / "s"), [b"one\n", b"two\n"]):
        assert send_command(str(tmp_path / "s"), "show info") == "one\ntwo\n"


@pytest.mark.parametrize("limit", ["MOST_BYTES", "TOTAL_SECONDS"])
def test_an_answer_without_end_is_an_error(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(admin_socket_host, limit, 0)
    with answering(str(tmp_path / "s"), endless()), pytest.raises(OSError, match="answers without end to 'show'"):
        send_command(str(tmp_path / "s"), "show info")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_haproxy_s_user_cannot_hold_the_lock(tmp_path):
    """It owns the directory of the sockets, and holds what it can in it: Debian's package makes it so."""
    place = tmp_path / "haproxy"
    place.mkdir()
    os.chown(place, 65534, 65534)
    for directory in (tmp_path, *tmp_path.parents):
        directory.chmod(directory.stat().st_mode | 0o055)
    code = (
        "import fcntl,os,sys,time; fcntl.flock(os.open(sys.argv[1], 0), 2)\n"
        "fcntl.flock(os.open(sys.argv[1] + '/admin.sock.lock', 66, 0o666), 2)\n"
        "print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-I", "-c", code, str(place)]
    with subprocess.Popen(words, user=65534, group=65534, stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert stranger.stdout.readline() == "held\n"
            with without_reload(f"{place}/admin.sock"), pytest.raises(LockedError), locked(f"{place}.lock", wait=0):
                pass
        finally:
            stranger.kill()


def test_without_its_directory_there_is_nothing_to_lock(tmp_path):
    with without_reload(str(tmp_path / "missing" / "admin.sock")):
        assert not list(tmp_path.iterdir())
