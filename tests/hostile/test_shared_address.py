# SPDX-License-Identifier: GPL-3.0-or-later
"""Who sends packets to two gateways wants the address that they share: real keepalived with the role's template.

The gateways, a stranger in their network and one behind a router are network namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.fakes.gateways import render

KEEPALIVED = shutil.which("keepalived") or shutil.which("keepalived", path="/usr/sbin")
pytestmark = [
    pytest.mark.skipif(KEEPALIVED is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs keepalived"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces"),
]
GATEWAYS = {"gw1": "10.9.0.1", "gw2": "10.9.0.2"}
SHARED = "10.9.0.100"
# Runs in a network of its own, which is the router: prints how many had the shared address during each attack.
# At the end the one that has it says that it is not usable, and the other one takes it.
NETWORK = """
import ctypes, json, os, pathlib, socket, struct, subprocess, sys, time
directory, keepalived = pathlib.Path(sys.argv[1]), sys.argv[2]
shared, gateways = json.loads(sys.argv[3])

def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

def host(name, address, router):
    ip("netns", "add", name)
    ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("link", "set", f"to-{name}", "up")
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "route", "add", "default", "via", router)

subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
for name, value in (("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")):
    pathlib.Path("/proc/sys/net/ipv4", name).write_text(value)
ip("link", "add", "bridge", "type", "bridge")
ip("link", "set", "bridge", "up")
ip("address", "add", "10.9.0.254/24", "dev", "bridge")
for name, address in [*gateways.items(), ("near", "10.9.0.66")]:
    host(name, address, "10.9.0.254")
    ip("link", "set", f"to-{name}", "master", "bridge")
host("far", "10.8.0.66", "10.8.0.254")
ip("address", "add", "10.8.0.254/24", "dev", "to-far")

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF

def advert():
    data = struct.pack("!BBBBBBH", 0x21, 51, 255, 1, 0, 1, 0) + socket.inet_aton(shared) + bytes(8)
    return data[:6] + struct.pack("!H", checksum(data)) + data[8:]

def packet(source, target):
    data = advert()
    fields = (0x45, 0xC0, 20 + len(data), 1, 0, 255, 112, 0, socket.inet_aton(source), socket.inet_aton(target))
    return struct.pack("!BBHHHBBH4s4s", *fields) + data

def attack(name, sources):
    child = os.fork()
    if child:
        return child
    with open(f"/run/netns/{name}") as file:
        assert ctypes.CDLL(None).setns(file.fileno(), 0x40000000) == 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        while True:
            for target in gateways.values():
                for source in sources:
                    if source != target:
                        sender.sendto(packet(source, target), (target, 0))
            time.sleep(0.3)

def holders():
    return [name for name in gateways if f" {shared}/" in ip("-n", name, "-o", "-4", "address")]

def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, holders()
        time.sleep(0.1)

running = []
for name in gateways:
    words = ["-n", "-l", "-P", "-f", directory / f"{name}.conf", "-p", f"/run/{name}.pid", "-r", f"/run/{name}.vrrp"]
    log = open(directory / f"{name}.log", "w")
    command = ["ip", "netns", "exec", name, keepalived, *words]
    running.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
try:
    until(lambda: len(holders()) == 1)
    found = {}
    for kind, name, sources in (
        ("a neighbour with its own address", "near", ["10.9.0.66"]),
        ("a stranger with its own address", "far", ["10.8.0.66"]),
        ("a stranger with the address of a gateway", "far", list(gateways.values())),
    ):
        child = attack(name, sources)
        # A gateway that heard it would wait as long as the attack goes on.
        time.sleep(5)
        end = time.monotonic() + 20
        while len(holders()) != 1 and time.monotonic() < end:
            time.sleep(0.1)
        found[kind] = len(holders())
        os.kill(child, 9)
        os.waitpid(child, 0)
    until(lambda: len(holders()) == 1)
    (before,) = holders()
    (directory / "new").write_text("1\\n")
    (directory / "new").rename(directory / f"{before}.unusable")
    until(lambda: holders() == [name for name in gateways if name != before])
    print(json.dumps(found))
finally:
    for process in running:
        process.terminate()
    for process in running:
        process.wait()
"""


def configure(directory, name):
    """Write the configuration of a gateway as the role does."""
    (directory / f"{name}.unusable").write_text("0\n")
    others = [address for each, address in GATEWAYS.items() if each != name]
    text = render(
        "keepalived.conf.j2",
        {
            "inventory_hostname": name, "gateway_interface": "eth0", "gateway_router_id": 51,
            "gateway_address": f"{SHARED}/24",
            "__gateway_paths": {"unusable": directory / f"{name}.unusable", "arrivals": directory / "arrivals"},
            "__gateway_plan": {"peers": {"own": GATEWAYS[name], "others": others}},
        },
    )  # fmt: skip
    (directory / f"{name}.conf").write_text(text)


def test_only_a_gateway_of_the_address_takes_it(tmp_path):
    for name in GATEWAYS:
        configure(tmp_path, name)
        subprocess.run([KEEPALIVED, "--config-test", "--use-file", tmp_path / f"{name}.conf"], check=True)
    words = [tmp_path, KEEPALIVED, json.dumps([SHARED, GATEWAYS])]
    command = ["unshare", "--net", "--mount", sys.executable, "-c", NETWORK, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert list(json.loads(done.stdout).values()) == [1, 1, 1] and "priority 255" not in logs, (done.stdout, logs)
