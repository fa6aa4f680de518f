# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between hosts of a group, with two addresses of loopback in the place of two hosts."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.links_host import (
    LinkError,
    answer,
    as_dict,
    largest_packet,
    listen,
    reach,
)

HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def port():
    with socket.create_server((THERE, 0)) as found:
        return found.getsockname()[1]


def serve(port, members, seconds=60):
    thread = threading.Thread(target=answer, args=(listen([THERE], port), members, seconds))
    thread.start()
    return thread


def test_a_host_that_answers(port):
    thread = serve(port, [HERE])
    link = reach(HERE, THERE, port, 1500)
    thread.join(30)
    assert (link.problem, link.mtu) == ("", 1500)
    assert abs(link.clock) < 20 and link.seconds < 20
    assert not thread.is_alive(), "it ends when every member is done"
    assert as_dict(link)["mtu"] == 1500


def test_a_host_that_does_not_listen(port):
    assert reach(HERE, THERE, port, 1500).problem == "Connection refused"


def test_a_host_that_is_no_member_gets_no_answer(port):
    thread = serve(port, ["127.0.0.9"], seconds=1)
    assert "does not know this host as a member" in reach(HERE, THERE, port, 1500).problem
    thread.join(30)
    assert not thread.is_alive(), "it ends when its time is over"


@pytest.mark.parametrize("text", [b"HTTP/1.1 400 Bad Request\r\n", b"", b"\xff\xfe\x00", b"nan or so"])
def test_another_program_that_listens_there(port, text):
    with socket.create_server((THERE, port)) as other:

        def reply():
            connection, _peer = other.accept()
            with connection:
                connection.recv(16)
                connection.sendall(text)

        thread = threading.Thread(target=reply)
        thread.start()
        problem = reach(HERE, THERE, port, 1500).problem
        thread.join(30)
    assert "something else listens there" in problem


def test_a_connection_that_nobody_answers(port):
    with socket.create_server((THERE, port)):
        began = time.monotonic()
        assert reach(HERE, THERE, port, 1500, patience=0.2).problem == "no answer"
        assert time.monotonic() - began < 20


def test_packets_larger_than_the_way_are_not_split(port):
    thread = serve(port, [HERE])
    # Loopback's own size is 65536; what is larger cannot be sent whole.
    assert reach(HERE, THERE, port, 65600).mtu == 9000
    thread.join(30)


def test_the_largest_size_that_passes():
    assert largest_packet(9000, lambda size: size <= 1500) == 1500
    assert largest_packet(9000, lambda size: True) == 9000
    assert largest_packet(1500, lambda size: False) == 0


def test_a_repeated_run_listens_beside_the_first_one(port):
    for opened in [*listen([THERE], port), *listen([THERE], port)]:
        opened.close()


def test_an_address_of_another_host():
    with pytest.raises(LinkError, match=r"cannot listen at 192\.0\.2\.1 port 29499: Cannot assign"):
        listen(["192.0.2.1"], 29499)
