# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import sock_diag_host
from ansible_collections.baremetal.inference.plugins.module_utils.vllm import ports_host
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.ports_host import Listener, listeners, unit_of

STRANGER = """
import os, socket, sys
os.setresuid(65534, 65534, 65534)
opened = socket.create_server(("127.0.0.1", 0))
print(opened.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_listening_process_is_found_by_its_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (found,) = listeners({port})
    assert (found.port, found.pid, found.uid) == (port, os.getpid(), os.geteuid())
    assert f"process {os.getpid()} (" in found.who and "py" in found.command
    assert f") of the user {pwd.getpwuid(os.geteuid()).pw_name}" in found.who


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_the_user_of_a_stranger_s_process_is_named():
    words = [sys.executable, "-I", "-c", STRANGER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        port = int(child.stdout.readline())
        (found,) = listeners({port})
        assert (found.pid, found.uid) == (child.pid, 65534) and ") of the user nobody" in found.who
        child.stdin.close()


def test_ipv6_listeners_count_too():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        # Another process may listen on the same port of IPv4.
        assert [found.port for found in listeners({port}) if found.pid == os.getpid()] == [port]


def test_a_closed_port_has_no_listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert listeners({port}) == []


def test_a_port_of_which_the_kernel_says_nothing_is_taken(monkeypatch):
    def refused(*_given):
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(sock_diag_host, "asked", refused)
    monkeypatch.setattr(sock_diag_host, "_MOST_TABLE", 1)
    (found,) = listeners({9})
    assert found == Listener(9, None, "", None) and found.who.startswith("a process that the kernel does not name")


def test_a_socket_that_nobody_visible_holds_belongs_to_the_unit_that_made_it(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports_host, "_socket_holders", lambda _inodes: iter(()))
        monkeypatch.setattr(ports_host, "paths_of", lambda groups: iter(["/system.slice/cron.service"] * len(groups)))
        (found,) = listeners({port})
    assert (found.pid, found.unit) == (None, "cron.service")
    assert found.who.startswith("a process out of sight of the user ") and found.who.endswith(", unit cron.service")


def test_a_command_line_with_control_characters_is_shown_in_one_line():
    assert "\n" not in Listener(1, 2, "a\n\x1b[31m", None, 0).who and "\x1b" not in Listener(1, 2, "\x1b", None, 0).who


def test_a_user_who_names_a_service_like_that_of_root_is_still_the_user():
    assert (
        unit_of("0::/user.slice/user-1000.slice/user@1000.service/app.slice/haproxy.service\n") == "user@1000.service"
    )
    assert unit_of("0::/system.slice/vllm@chat.service/libpod-payload-1\n") == "vllm@chat.service"


def test_unit_comes_from_the_outermost_service():
    assert unit_of("0::/system.slice/system-vllm.slice/vllm@chat.service\n") == "vllm@chat.service"
    assert unit_of("0::/user.slice/user-0.slice/session-1.scope\n") is None
