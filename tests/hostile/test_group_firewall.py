# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches a host of two groups wants the ports between their hosts: real nftables with the role's template.

The host and what reaches it are network namespaces; each member of a group is an address of the second one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import firewall_tables

from tests.fakes.gateways import TOP, render

NFT = shutil.which("nft") or shutil.which("nft", path="/usr/sbin")
pytestmark = [
    pytest.mark.skipif(NFT is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs nftables"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces"),
]
HOST, FIRST, SECOND, STRANGER = "10.20.0.1", "10.20.0.2", "10.20.0.3", "10.20.0.4"
# The ports of the first group, the second one, an ephemeral one, and that of requests.
PORTS = [29501, 29511, 40001, 8000]
# Runs in namespaces of its own: loads what it is told step by step, and prints which address reaches which ports then.
NETWORK = """
import ctypes, json, socket, subprocess, sys
nft, host, others, ports, steps = json.loads(sys.argv[1])

def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)

subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
ip("netns", "add", "others")
ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", "others")
ip("address", "add", f"{host}/24", "dev", "eth0")
ip("link", "set", "eth0", "up")
for address in others:
    ip("-n", "others", "address", "add", f"{address}/24", "dev", "eth0")
ip("-n", "others", "link", "set", "eth0", "up")
listeners = [socket.create_server(("0.0.0.0", port)) for port in ports]
here, there = (open(path) for path in ("/proc/self/ns/net", "/run/netns/others"))

def reaches(address, port):
    ctypes.CDLL(None).setns(there.fileno(), 0x40000000)
    with socket.socket() as client:
        client.settimeout(0.7)
        client.bind((address, 0))
        ctypes.CDLL(None).setns(here.fileno(), 0x40000000)
        try:
            client.connect((host, port))
        except OSError:
            return False
        return True

found = []
for words, text in steps:
    subprocess.run([nft, *words], input=text, check=True, text=True)
    found.append({address: [port for port in ports if reaches(address, port)] for address in others})
found.append(subprocess.run([nft, "list", "tables"], check=True, capture_output=True, text=True).stdout.split())
print(json.dumps(found))
"""


def rules(name, port, peer, **more):
    """Return the step that loads the firewall of an instance of HOST and another host."""
    group = {"address": HOST, "peers": {"b": peer}, "role": "head", "guarded": [str(port)], **more}
    item = {"name": name, "plan": {"listen": {"port": 8000}, "group": group}}
    variables = {"item": item, "vllm_group_ports": "32768-60999"}
    return ["-f", "-"], render("group.nft.j2", variables, TOP / "roles/vllm")


def run(*steps):
    words = json.dumps([NFT, HOST, [FIRST, SECOND, STRANGER], PORTS, steps])
    command = ["unshare", "--net", "--mount", sys.executable, "-c", NETWORK, words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *found, tables = json.loads(done.stdout)
    return found, [word for word in tables if word not in ("table", "inet")]


def removed(name):
    return [(["delete", "table", "inet", firewall_tables(name)[0]], "")]


def test_groups_of_a_host_neither_open_nor_close_each_others_ports():
    first = rules("qwen-2", 29501, FIRST, beside=[SECOND])
    second = rules("qwen.2", 29511, SECOND, beside=[FIRST])
    found, tables = run(first, second, first, *removed("qwen.2"))
    whole = {FIRST: [29501, 40001, 8000], SECOND: [29511, 40001, 8000], STRANGER: [8000]}
    assert found[1] == found[2] == whole
    # Before the second one has started nobody but the members reaches its port either.
    assert found[0] == {FIRST: PORTS, SECOND: [29511, 40001, 8000], STRANGER: [29511, 8000]}
    # Without the second group the first one is as before.
    assert found[3] == found[0] and tables == ["vllm-group-qwen-2"]


def test_names_that_are_alike_have_tables_of_their_own():
    names = ["qwen-2", "qwen.2", "qwen_2", "Qwen-2", "q" * 100]
    _found, tables = run(*(rules(name, 29501, FIRST) for name in names))
    assert sorted(tables) == sorted(firewall_tables(name)[0] for name in names)


def test_the_table_of_an_older_release_is_gone():
    old = firewall_tables("qwen-2")[1]
    assert old == firewall_tables("qwen.2")[1] == "vllm_group_qwen_2"
    drop = f"table inet {old} {{ chain input {{ type filter hook input priority -5; tcp dport 29501 drop; }}; }}"
    found, tables = run((["-f", "-"], drop), rules("qwen-2", 29501, FIRST))
    assert 29501 not in found[0][FIRST] and 29501 in found[1][FIRST] and tables == ["vllm-group-qwen-2"]
