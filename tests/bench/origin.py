#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""One origin, eight hosts, each on its own link: how long until all have a model, and what leaves the origin.

Each host is a network namespace on one bridge; tc limits its link both ways. All fetch at once from the origin's nginx,
so that the origin's link is the bound: hosts x bytes / rate. A way to bring weights from host to host has to beat it.
Needs root, ip, tc and nginx.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from weights import MEGABYTE, OURS, TOP, make

ADDRESS = "10.99.7."
CONF = """worker_processes 2; pid {0}/nginx.pid; error_log {0}/error.log; daemon off; user root;
events {{ worker_connections 256; }}
http {{ sendfile on; access_log off; server {{ listen 80; root {0}/site; }} }}
"""


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def inside(name: str, *words: object) -> list[str]:
    return ["ip", "netns", "exec", name, *(str(word) for word in words)]


@contextlib.contextmanager
def network(hosts: int, rate: int) -> Iterator[list[str]]:
    """Yield the namespaces of the origin and the hosts, each on a link of ``rate`` Mbit/s."""
    prefix = f"bench{os.getpid()}"
    switch, names = f"{prefix}s", [f"{prefix}-{number}" for number in range(hosts + 1)]
    try:
        for name in (switch, *names):
            run("ip", "netns", "add", name)
        run(*inside(switch, "ip", "link", "add", "br0", "type", "bridge"))
        run(*inside(switch, "ip", "link", "set", "br0", "up"))
        for number, name in enumerate(names):
            connect(switch, name, number, rate)
        yield names
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def connect(switch: str, name: str, number: int, rate: int) -> None:
    port = f"port{number}"
    run(*inside(switch, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name))
    run(*inside(switch, "ip", "link", "set", port, "master", "br0", "up"))
    run(*inside(name, "ip", "address", "add", f"{ADDRESS}{number + 1}/24", "dev", "eth0"))
    for device in ("lo", "eth0"):
        run(*inside(name, "ip", "link", "set", device, "up"))
    limit = ("root", "tbf", "rate", f"{rate}mbit", "burst", "256kb", "latency", "50ms")
    run(*inside(switch, "tc", "qdisc", "add", "dev", port, *limit))
    run(*inside(name, "tc", "qdisc", "add", "dev", "eth0", *limit))


@contextlib.contextmanager
def nginx(home: Path, name: str) -> Iterator[None]:
    (home / "nginx.conf").write_text(CONF.format(home))
    server = subprocess.Popen(inside(name, shutil.which("nginx") or "/usr/sbin/nginx", "-c", home / "nginx.conf"))
    try:
        probe = inside(
            name, "curl", "-sf", "-o", "/dev/null", "--retry", "20", "--retry-connrefused", "--retry-delay", "1"
        )
        run(*probe, f"http://{ADDRESS}1/model-0")
        yield
    finally:
        server.terminate()
        server.wait()


def sent(name: str) -> int:
    """Return the bytes that have left a namespace."""
    path = "/sys/class/net/eth0/statistics/tx_bytes"
    # sysfs shows the interfaces of the namespace that mounted it.
    return int(subprocess.check_output(["ip", "netns", "exec", name, "cat", path]))


def fetch_at_once(home: Path, names: list[str], wanted: list[list[object]]) -> list[float]:
    """Let all hosts fetch; return the seconds that each took."""
    children, ends = [], {}
    started = time.monotonic()
    for name in names:
        out = home / name
        out.mkdir()
        files = [
            [f"http://{ADDRESS}1/{Path(str(file[1])).name}", str(out / Path(str(file[1])).name), *file[2:]]
            for file in wanted
        ]
        child = subprocess.Popen(inside(name, sys.executable, "-c", OURS, TOP / ".collections"), stdin=subprocess.PIPE)
        child.stdin.write(json.dumps(files).encode())
        child.stdin.close()
        children.append(child)
    while len(ends) < len(children):
        pid, status = os.wait()
        if status:
            sys.exit(f"a host's fetch ended with {status}")
        ends[pid] = time.monotonic() - started
    for child in children:
        child.returncode = 0
    return sorted(ends[child.pid] for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", type=int, default=400, help="of each link in Mbit/s")
    parser.add_argument("--megabytes", type=int, default=60, help="of the model, in four files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, network(options.hosts, options.rate) as names:
        home = Path(directory)
        wanted = make(home, "model", 4, options.megabytes * MEGABYTE // 4)
        with nginx(home, names[0]):
            before = sent(names[0])
            took = fetch_at_once(home, names[1:], wanted)
            left = sent(names[0]) - before
    size = options.megabytes * MEGABYTE
    second = options.rate * MEGABYTE / 8
    bound = options.hosts * size / second
    print(f"{options.hosts} hosts, {size / MEGABYTE:.0f} MB each, every link {options.rate} Mbit/s")
    print(f"  first host {took[0]:.1f} s, last host {took[-1]:.1f} s")
    print(
        f"  bound of one origin {bound:.1f} s (all copies over its link): {bound / took[-1]:.2f} of the bound's speed"
    )
    print(f"  left the origin: {left / MEGABYTE:.0f} MB, {left / size:.2f} copies")
    print(
        f"  for fan-out to beat: {took[-1]:.1f} s and {left / size:.2f} copies; the links allow {size / second:.1f} s"
    )


if __name__ == "__main__":
    main()
