# SPDX-License-Identifier: GPL-3.0-or-later
"""A socket of root in a directory that another user can write: the real kernel says who listens."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import unix_socket_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.unix_socket_host import (
    ask_root,
    ask_root_in_parts,
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
        assert ask_root(str(tmp_path / "s"), "show info") == "one\ntwo\n"


@pytest.mark.parametrize("seconds", [0, 60])
def test_an_answer_without_end_is_an_error(tmp_path, monkeypatch, seconds):
    monkeypatch.setattr(unix_socket_host, "MOST_BYTES", 1 << 20 if seconds else 64 << 20)
    with answering(str(tmp_path / "s"), endless()), pytest.raises(OSError, match="answers without end to 'show'"):
        ask_root(str(tmp_path / "s"), "show info", 5, seconds)


def test_an_answer_in_parts_may_be_longer_and_not_take_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(unix_socket_host, "MOST_BYTES", 100)
    with answering(str(tmp_path / "s"), [b"x" * 1000, b"y" * 1000]):
        assert b"".join(ask_root_in_parts(str(tmp_path / "s"), "show sess")) == b"x" * 1000 + b"y" * 1000
    with answering(str(tmp_path / "t"), endless()), pytest.raises(OSError, match="answers without end to 'show'"):
        list(ask_root_in_parts(str(tmp_path / "t"), "show sess", 5, 0))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_process_of_another_user_at_the_socket_is_told_and_believed_nothing(tmp_path):
    place = tmp_path / "haproxy"
    place.mkdir()
    os.chown(place, 65534, 65534)
    for directory in (tmp_path, *tmp_path.parents):
        directory.chmod(directory.stat().st_mode | 0o055)
    code = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "print('here', flush=True)\n"
        "c=s.accept()[0]; print('told', c.recv(100), flush=True); c.sendall(b'x'); c.close()"
    )
    words = [sys.executable, "-I", "-c", code, str(place / "admin.sock")]
    with subprocess.Popen(words, user=65534, group=65534, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout.readline() == "here\n"
        with pytest.raises(PermissionError, match="a process of the user with uid 65534 listens there"):
            ask_root(str(place / "admin.sock"), "show map")
        assert stranger.stdout.readline() == "told b''\n"
