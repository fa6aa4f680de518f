# SPDX-License-Identifier: GPL-3.0-or-later
"""Nobody but the instance is asked: real sockets, and real processes of other users."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import BenchError, Target
from ansible_collections.baremetal.inference.plugins.module_utils.bench.target_host import Instance
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import TimedClient
from ansible_collections.baremetal.inference.plugins.module_utils.instance import (
    api_host,
    listener_host,
    sock_diag_host,
    wait_ready_host,
)
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import (
    Listening,
    Processes,
)
from ansible_collections.baremetal.inference.plugins.module_utils.instance.listener_host import StrangerError
from ansible_collections.baremetal.inference.plugins.module_utils.residents import member_host

from tests.fakes.stranger import UID, listening, requests

SENTENCE = (
    r"127\.0\.0\.1 port {port}: a process of the user with uid 65534 listens there, expected the instance; nothing is "
    r"sent to it: find it with ss -ltnp 'sport = :{port}', end it, and start the instance again"
)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_another_user_is_sent_nothing_and_is_named(address):
    with listening(address) as (port, server):
        asked = "::1" if address == "::1" else "127.0.0.1"
        with pytest.raises(StrangerError, match=f"{re.escape(asked)} port {port}: .* uid {UID} "):
            api_host.ask(Listening(asked, port), "GET", "/health", 5, headers={"Authorization": "Bearer k"})
        assert requests(server) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_instance_s_user_root_and_one_that_root_bound_for_are_asked(address):
    asked = "::1" if address == "::1" else "127.0.0.1"
    for uid, users in ((UID, (UID,)), (0, ())):
        with listening(address, uid) as (port, _server):
            assert api_host.ask(Listening(asked, port, expected=Processes(users)), "GET", "/", 5).status == 200


def test_a_stranger_at_another_address_of_the_port_disturbs_nobody():
    with listening("127.0.0.1", 0) as (port, _server), socket.socket() as other:
        other.bind(("127.0.0.2", port))
        other.listen()
        os.fchown(other.fileno(), UID, UID)
        assert UID in {row.uid for row in sock_diag_host.sockets(port, 1)}
        assert api_host.ask(Listening("127.0.0.1", port), "GET", "/", 5).status == 200


def test_an_end_that_took_the_connection_and_gave_the_port_away_is_seen():
    with listening(uid=UID, bound_as_root=True) as (port, server):
        # Accepts as nobody at a socket of root.
        with socket.create_connection(("127.0.0.1", port)) as opened:
            opened.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert opened.recv(20)
            with pytest.raises(StrangerError):
                listener_host.check_peer(opened, Processes())
        assert requests(server)


@pytest.mark.parametrize("listens", [True, False])
def test_the_group_of_root_s_sockets_is_asked_too_and_of_those_whose_listener_is_closed(monkeypatch, listens):
    asked = []
    monkeypatch.setattr(listener_host, "stranger_at", lambda *given: asked.append(given) or "/docker/x")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname()) as opened:
            here, peer = opened.getsockname(), opened.getpeername()
            end = sock_diag_host.Row(peer, here, 0, False, group=7)
            rows = [end, end._replace(remote=("0.0.0.0", 0), listens=True)] if listens else [end]
            monkeypatch.setattr(listener_host, "sockets", lambda *_ports: rows)
            with pytest.raises(StrangerError, match="a process of '/docker/x' listens there, expected the instance"):
                listener_host.check_peer(opened, Processes((0,), "chat"))
    assert asked == [({7}, "chat", True)]


def test_another_host_is_not_judged(monkeypatch):
    # No user of this host can be at an end that the kernel does not have.
    with listening() as (port, _server):
        monkeypatch.setattr(listener_host, "sockets", lambda _port, _remote: [])
        assert api_host.ask(Listening("127.0.0.1", port), "GET", "/", 5).status == 200


def test_nothing_is_sent_where_the_kernel_does_not_say_who_listens(monkeypatch):
    # It failed open: a table of more bytes than a program reads had no end of the connection.
    def unknown(*_given):
        raise OSError("a table has more than 8 MiB")

    with listening() as (port, server):
        monkeypatch.setattr(listener_host, "sockets", unknown)
        with pytest.raises(
            StrangerError, match=rf"127\.0\.0\.1 port {port}: the kernel does not say .*more than 8 MiB"
        ):
            api_host.ask(Listening("127.0.0.1", port), "GET", "/", 5, headers={"Authorization": "Bearer k"})
        assert requests(server) == []


def test_a_unit_that_sees_processes_alone_sees_the_tables():
    code = f"import os; os.stat({sock_diag_host.NET!r} + '/tcp'); print(os.path.exists('/proc/net/tcp'))"
    command = f'mount -t proc -o subset=pid proc /proc && exec {sys.executable} -I -c "{code}"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    for module in (member_host, wait_ready_host):
        monkeypatch.setattr(module, "CONFIG_DIR", str(tmp_path / "etc"))
        monkeypatch.setattr(module, "RUN_DIR", str(tmp_path / "run"))
    for place in ("etc", "run/chat"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "etc/chat.secrets").write_text('VLLM_API_KEY="top-secret"\n')
    return tmp_path


def test_the_user_of_an_instance_owns_its_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(listener_host, "CACHE_DIR", str(tmp_path))
    assert listener_host.processes_of("chat") == Processes((), "chat")
    (tmp_path / "chat").mkdir()
    os.chown(tmp_path / "chat", UID, UID)
    assert listener_host.processes_of("chat") == Processes((UID,), "chat")


def test_no_stranger_gets_an_operator_s_token_or_a_key(host):
    with listening() as (port, server):
        (host / "etc/chat.yaml").write_text(f"host: 127.0.0.1\nport: {port}\nmodel: x\n")
        said = []
        member = member_host.Member("chat", member_host.News(), said.append)
        with pytest.raises(member_host.CallError, match=SENTENCE.format(port=port)):
            member.call("GET", "/residents", 5)
        assert member.loop.attempt(member._ask_news) is False and f"uid {UID}" in said[0]
        assert requests(server) == []


def test_no_stranger_makes_an_instance_ready(host, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "top-secret")
    with listening() as (port, server):
        (host / "etc/chat.yaml").write_text(f"host: 127.0.0.1\nport: {port}\nmodel: x\n")
        with pytest.raises(StrangerError, match=SENTENCE.format(port=port)):
            wait_ready_host.wait_ready("chat", str(os.getpid()), 2.0)
        # One who comes after the first answer.
        with pytest.raises(StrangerError):
            wait_ready_host.warm_up("chat", Listening("127.0.0.1", port), 2.0)
        assert not os.listdir(host / "run/chat") and requests(server) == []


def test_no_stranger_gets_the_key_of_a_gate_or_of_a_benchmark(monkeypatch):
    with listening() as (port, server):
        url = f"http://127.0.0.1:{port}"
        reply = TimedClient(url, "top-secret", expected=Processes()).request("GET", "/v1/models", None, 5)
        assert reply.status == 0 and re.fullmatch(SENTENCE.format(port=port), reply.failure)
        instance = Instance("chat", Target(url, "m", "m", (), ()), "top-secret", ())
        with pytest.raises(BenchError, match=f"instance chat: {SENTENCE.format(port=port)}"):
            instance.guard()
        assert requests(server) == []
        # A gateway may run as any user.
    with listening() as (port, _server):
        assert TimedClient(f"http://127.0.0.1:{port}", "k").request("GET", "/", None, 5).status == 200
