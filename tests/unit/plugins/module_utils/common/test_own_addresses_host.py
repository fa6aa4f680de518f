# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses that a host does not have are refused in one sentence, before a program fails to listen on them."""

from __future__ import annotations

import errno
import os
import platform
import socket

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import own_addresses_host as own

# Of TEST-NET-3: no host has it.
FOREIGN = "203.0.113.9"


def test_an_address_of_another_host_is_named_with_those_of_this_one():
    found = own.listen_problem({"gateway_stats_listen": "127.0.0.1", "gateway_listen": FOREIGN})
    assert found.startswith(f"{platform.node()}: gateway_listen: found '{FOREIGN}', expected an address of this host (")
    assert found.endswith("), or 0.0.0.0 or :: for all of them") and "127.0.0.1" in found


@pytest.mark.parametrize("address", ["0.0.0.0", "*", "", "localhost", "gpu-a.site", "127.0.0.1", "127.0.0.53"])
def test_what_a_program_can_listen_on_is_allowed(address):
    assert own.listen_problem({"mirror_listen": address}) == ""


@pytest.mark.parametrize(("number", "is_refused"), [(errno.EADDRINUSE, False), (errno.EADDRNOTAVAIL, True)])
def test_a_host_whose_connections_have_every_port_still_has_its_addresses(monkeypatch, number, is_refused):
    def bind(_socket, _address):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", bind)
    assert bool(own.listen_problem({"gateway_listen": "0.0.0.0"})) == is_refused


def test_every_address_of_the_host_is_listed_without_those_of_a_zone(tmp_path, monkeypatch):
    trie = "Local:\n  +-- 10.0.0.0/8 2 0 2\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.255\n"
    trie += (
        "        /32 link BROADCAST\n  |-- 127.0.0.0\n        /8 host LOCAL\n  |-- 127.0.0.1\n        /32 host LOCAL\n"
    )
    (tmp_path / "trie").write_text(trie * 2)
    lines = (("fd00" + "0" * 27 + "5", "00"), ("fe80" + "0" * 27 + "1", "20"), ("0" * 31 + "1", "10"))
    (tmp_path / "inet6").write_text("".join(f"{address} 01 80 {scope} 80 eth0\n" for address, scope in lines))
    monkeypatch.setattr(own, "IPV4", str(tmp_path / "trie"))
    monkeypatch.setattr(own, "IPV6", str(tmp_path / "inet6"))
    assert own.own_addresses() == ["10.0.0.5", "fd00::5", "127.0.0.1", "::1"]
    monkeypatch.setattr(own, "MOST", 2)
    assert "(10.0.0.5, fd00::5, and 2 more)" in own.listen_problem({"mirror_listen": FOREIGN})
