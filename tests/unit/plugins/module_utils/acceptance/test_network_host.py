# SPDX-License-Identifier: GPL-3.0-or-later
"""Two sides of a real connection."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance.network_host import (
    STREAMS,
    NetworkError,
    receive,
    serve,
)

from tests.fakes.gateways import free_port


def test_throughput_between_two_sides():
    port, served = free_port(), []
    thread = threading.Thread(target=lambda: served.append(serve(port, 0.6, 10)))
    thread.start()
    found = receive("127.0.0.1", port, 0.5, 10)
    thread.join()
    assert served == [STREAMS]
    assert found.bytes > 0
    assert found.gbit_per_s == pytest.approx(found.bytes * 8 / found.seconds / 1e9, rel=0.05)


def test_nobody_listens():
    begin = time.monotonic()
    with pytest.raises(NetworkError, match=r"no connection to 127.0.0.1 port \d+ within 1 s: .*accept_port"):
        receive("127.0.0.1", free_port(), 1, 1)
    assert time.monotonic() - begin < 30


def test_nobody_comes():
    assert serve(free_port(), 1, 0.2) == 0


def test_a_port_that_is_taken():
    with contextlib.closing(socket.create_server(("", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(NetworkError, match=f"port {port}: cannot listen: .*; set accept_port"):
            serve(port, 1, 0.2)


def test_another_program_listens_and_sends_nothing():
    other = socket.create_server(("127.0.0.1", 0))
    with contextlib.closing(other), pytest.raises(NetworkError, match="connected, but nothing arrived"):
        receive("127.0.0.1", other.getsockname()[1], 0.3, 2)
