# SPDX-License-Identifier: GPL-3.0-or-later
"""A program with a key ends when the instance does: real sockets, and real processes of other users."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Processes
from ansible_collections.baremetal.inference.plugins.module_utils.instance.listener_guard_host import ListenerGuard
from ansible_collections.baremetal.inference.plugins.module_utils.instance.listener_host import StrangerError

from tests.fakes.stranger import UID, listening


@contextlib.contextmanager
def program(seconds):
    with subprocess.Popen(["sleep", str(seconds)], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_stranger_who_has_the_port_already_is_an_error():
    with listening("127.0.0.1") as (port, _server), pytest.raises(StrangerError, match=f"uid {UID} listens there"):
        ListenerGuard("127.0.0.1", port, Processes())


def test_a_program_ends_by_itself_while_the_instance_listens_also_where_it_closes_idle_connections():
    with socket.create_server(("127.0.0.1", 0)) as listener, program(0.7) as process:
        guard = ListenerGuard("127.0.0.1", listener.getsockname()[1], Processes())
        with guard.ending(process):
            listener.accept()[0].close()
            assert process.wait(30) == 0
        assert guard.problem == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket to another user")
def test_a_program_is_killed_where_another_user_takes_the_port_of_an_instance_that_has_ended():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    guard = ListenerGuard("127.0.0.1", port, Processes())
    accepted = listener.accept()[0]
    listener.close()
    with socket.create_server(("127.0.0.1", port)) as other, program(60) as process, guard.ending(process):
        os.fchown(other.fileno(), UID, UID)
        accepted.close()
        assert process.wait(30) == -9
    assert f"127.0.0.1 port {port}: a process of the user with uid {UID} listens there" in guard.problem


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket to another user")
def test_a_listener_beside_that_of_the_instance_is_noticed_too():
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as listener, program(60) as process:
        port = listener.getsockname()[1]
        guard = ListenerGuard("127.0.0.1", port, Processes())
        with guard.ending(process), socket.create_server(("127.0.0.1", port), reuse_port=True) as other:
            os.fchown(other.fileno(), UID, UID)
            assert process.wait(30) == -9
    assert f"uid {UID} listens there" in guard.problem


def test_a_program_is_killed_where_nobody_listens_any_longer():
    listener = socket.create_server(("127.0.0.1", 0))
    guard = ListenerGuard("127.0.0.1", listener.getsockname()[1], Processes())
    with program(60) as process, guard.ending(process):
        listener.close()
        assert process.wait(30) == -9
    assert "refused" in guard.problem
