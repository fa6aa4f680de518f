# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket

from ansible_collections.baremetal.inference.plugins.module_utils.vllm.ports_host import listeners, unit_of


def test_a_listening_process_is_found_by_its_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (found,) = listeners({port})
    assert (found.port, found.pid) == (port, os.getpid())
    assert "py" in found.command


def test_ipv6_listeners_count_too():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        # Another process may listen on the same port of IPv4.
        assert [found.port for found in listeners({port}) if found.pid == os.getpid()] == [port]


def test_a_closed_port_has_no_listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert listeners({port}) == []


def test_a_user_who_names_a_service_like_that_of_root_is_still_the_user():
    assert (
        unit_of("0::/user.slice/user-1000.slice/user@1000.service/app.slice/haproxy.service\n") == "user@1000.service"
    )
    assert unit_of("0::/system.slice/vllm@chat.service/libpod-payload-1\n") == "vllm@chat.service"


def test_unit_comes_from_the_outermost_service():
    assert unit_of("0::/system.slice/system-vllm.slice/vllm@chat.service\n") == "vllm@chat.service"
    assert unit_of("0::/user.slice/user-0.slice/session-1.scope\n") is None
