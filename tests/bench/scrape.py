#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of a processor Debian's Prometheus takes for 1,000 instances, with the files of monitoring.yml.

Scrape configuration, interval, recording rules and alerts are those that the playbook writes. A stand-in serves every
series that catalog/metrics knows of a release, with values that change each second: more than any instance has. The
goal is less than one processor, for scrapes and rules together, after all series are known.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / ".collections"))

from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.targets import JOBS, Targets
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.tree import entries

RELEASE, GOAL = "0.33.0", 1.0
BUCKETS = ("0.01", "0.02", "0.04", "0.08", "0.1", "0.25", "0.5", "0.75", "1", "2.5", "5", "7.5", "10", "20", "40", "80",
           "160", "320", "640", "2560", "+Inf")  # fmt: skip
LABELS = 'engine="0",model_name="openai/gpt-oss-120b"'
TICK = os.sysconf("SC_CLK_TCK")


def body(metrics: dict[str, str], moment: int) -> bytes:
    """Return the metrics of an instance at a moment."""
    lines = []
    for number, (name, kind) in enumerate(metrics.items()):
        value = moment * (number % 7 + 1)
        if kind == "histogram":
            lines += [
                f'{name}_bucket{{{LABELS},le="{limit}"}} {value * (place + 1)}' for place, limit in enumerate(BUCKETS)
            ]
            lines += [f"{name}_sum{{{LABELS}}} {value}.5", f"{name}_count{{{LABELS}}} {value * len(BUCKETS)}"]
        else:
            ending = "_total" if kind == "counter" and not name.endswith("_total") else ""
            lines.append(f"{name}{ending}{{{LABELS}}} {value}")
    return ("\n".join(lines) + "\n").encode()


class Instance(asyncio.Protocol):
    """A connection to an instance. The answer is made once a second for all of them."""

    metrics = yaml.safe_load((TOP / f"catalog/metrics/{RELEASE}.yml").read_text())["metrics"]
    known: tuple[int, bytes] = (0, b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.asked = transport, b""

    def data_received(self, data: bytes) -> None:
        self.asked += data
        if not self.asked.endswith(b"\r\n\r\n"):
            return
        self.asked, moment = b"", int(time.time())
        if Instance.known[0] != moment:
            text = body(self.metrics, moment)
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(text)}\r\n\r\n"
            Instance.known = (moment, head.encode() + text)
        self.transport.write(Instance.known[1])


def serve() -> int:
    """Serve the instances on all addresses of this machine, and return the port."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(Instance, "0.0.0.0", 0, backlog=1024))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return server.sockets[0].getsockname()[1]


def write(directory: Path, count: int, port: int) -> None:
    """Write the files of monitoring.yml for instances on the addresses of this machine."""
    found = Targets()
    for number in range(count):
        labels = {"cluster": f"c{number // 250}", "host": f"gpu-{number:04}", "instance": "chat", "service": "chat",
                  "accelerator": "h200", "release": RELEASE}  # fmt: skip
        found.add("vllm", f"127.1.{number // 250}.{number % 250 + 1}", port, labels)
    assert set(found.jobs) == set(JOBS)
    for entry in entries(str(directory), found.files()):
        if entry.get("state") == "directory":
            Path(entry["path"]).mkdir(parents=True, exist_ok=True)
        elif "src" in entry:
            shutil.copy(entry["src"], entry["path"])
        else:
            Path(entry["path"]).write_text(entry["content"])


def ask(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return answer.read().decode()


def up(url: str) -> int:
    """Return how many instances Prometheus reaches."""
    try:
        targets = json.loads(ask(f"{url}/api/v1/targets?state=active"))["data"]["activeTargets"]
    except OSError:
        return 0
    return sum(target["health"] == "up" for target in targets)


def figure(url: str, name: str) -> float:
    """Return one of Prometheus's own figures; newer releases have several of some, with labels."""
    values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", ask(f"{url}/metrics"), re.MULTILINE)
    return sum(map(float, values))


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=90, help="seconds that are measured (default 90)")
    parser.add_argument("--settle", type=int, default=30, help="seconds until every rule has run (default 30)")
    options = parser.parse_args()
    port = serve()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "monitoring"
        write(directory, options.instances, port)
        command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={name}/data",
                   f"--web.listen-address={own}", "--log.level=warn"]  # fmt: skip
        prometheus = subprocess.Popen(command, cwd=name)
        try:
            measure(f"http://{own}", prometheus, options)
        finally:
            prometheus.terminate()
            prometheus.wait()


def measure(url: str, prometheus: subprocess.Popen[bytes], options: argparse.Namespace) -> None:
    """Wait until all series are known, measure, print, and fail where the goal is missed."""
    # A busy machine misses a scrape now and then.
    enough = 0.99 * options.instances
    deadline = time.monotonic() + 240
    while up(url) < enough:
        if prometheus.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"Prometheus reaches {up(url)} of {options.instances} instances")
        time.sleep(1)
    # Every series has been written once, and every rule has run over all of them.
    time.sleep(options.settle)
    appended = "prometheus_tsdb_head_samples_appended_total"
    began, used, samples = time.monotonic(), processor_seconds(prometheus.pid), figure(url, appended)
    time.sleep(options.seconds)
    took = time.monotonic() - began
    used, samples = processor_seconds(prometheus.pid) - used, figure(url, appended) - samples
    series, memory = figure(url, "prometheus_tsdb_head_series"), figure(url, "process_resident_memory_bytes")
    print(f"scrape    {used / took:5.2f} processors, {options.instances} instances, {series:,.0f} series, "
          f"{samples / took:,.0f} samples/s, {memory / 2**20:,.0f} MiB")  # fmt: skip
    if up(url) < enough:
        sys.exit(f"Prometheus reaches {up(url)} of {options.instances} instances")
    if used / took >= GOAL:
        sys.exit(f"Prometheus took {GOAL:g} processor or more")


if __name__ == "__main__":
    main()
