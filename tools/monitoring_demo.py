#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show a fault of a chip in Debian's Prometheus and alertmanager, in a lab that is removed again (`make monitoring`).

Stand-ins for two instances of vLLM serve on a stand-in for a host with chips. The health service, the gateway, HAProxy,
the node exporter, Prometheus and alertmanager are real.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Callable

from tools.demo import TOP, run

HOSTS = SERVING, GATEWAY = ("cuda-12", "mirror")
SERVER, CHIP = "cuda-12--chat-2", "0000:20:00.0"
FAULT = "NVRM: Xid (PCI:0000:20:00): 64, Row Remapper: failed"
KERNEL_LOG = "/var/lib/standin-kmsg"
INVENTORY = ".config/molecule/inventory/health/20-health.yml"
# Prometheus reaches the gateway's figures and the node exporters.
SETTINGS = {"gateway_stats_listen": "0.0.0.0", "site_monitoring": True, "monitoring_node_listen": "0.0.0.0"}  # noqa: S104
# What Prometheus scrapes: two instances, the node exporters of both hosts, the gateway.
TARGETS = {"haproxy": 1, "node": 2, "vllm": 2}
# Seconds for each step; Prometheus asks every 15 s, on a machine that may have other work.
PATIENCE = 300
CLIENTS = 2
# The lab's hosts are not behind the controller's proxy.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    os.chdir(TOP)
    os.environ.setdefault("LAB_NAME", "monitoring")
    os.environ.setdefault("LAB_SUBNET_PREFIX", "10.87.206")
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    lab = Path(os.environ.setdefault("LAB_HOME", str(TOP / ".lab")))
    lab.mkdir(parents=True, exist_ok=True)
    directory = lab / os.environ["LAB_NAME"] / "monitoring"
    started = time.monotonic()
    print(f"The whole output goes to {lab}/monitoring.log", flush=True)
    with (lab / "monitoring.log").open("w", encoding="utf-8") as log:
        try:
            for title, command in phases(directory):
                run(title, command, log)
            show(f"{os.environ['LAB_SUBNET_PREFIX']}.10")
        finally:
            if Path(".venv/bin/python").exists():
                run("Remove the lab", ("bin/lab", "down"), log)
    print(f"{time.monotonic() - started:7.1f} s  in total\n\nThe fault went all the way, and came back.")


def phases(directory: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return what builds the lab: a title and a command each; ``directory`` is for the files of monitoring.yml."""
    # The hosts of this lab alone: the inventory of all labs has others in the group that serves.
    play = (".venv/bin/ansible-playbook", "-i", str(directory.parent / "inventory.json"), "-i", INVENTORY)
    settings = ("-e", json.dumps({**SETTINGS, "monitoring_dir": str(directory)}))
    return [
        ("Install what the controller needs", ("tools/bootstrap.sh",)),
        ("Start the lab hosts", ("bin/lab", "up", *HOSTS)),
        ("Create the stand-ins for chips and instances", (*play, "molecule/role_health/prepare.yml")),
        ("Watch the chips: health.yml", (*play, "playbooks/health.yml", "-e", f"target_hosts={SERVING}")),
        ("Set up the gateway: gateway.yml", (*play, "playbooks/gateway.yml", *settings)),
        ("Write targets, rules and dashboards: monitoring.yml", (*play, "playbooks/monitoring.yml", *settings)),
        (
            "Install Prometheus and alertmanager, and include these files",
            (*play, "tools/lab/monitoring.yml", *settings),
        ),
    ]


def show(address: str) -> None:
    """Inject the fault and follow it, there and back. Raises SystemExit where a step does not happen."""
    prometheus, alertmanager = f"http://{address}:9090", f"http://{address}:9093"
    with Load(f"http://{address}:8443") as load:
        until("Prometheus reaches every target", lambda: targets_up(prometheus) == TARGETS)
        print(f"{'':11}{', '.join(f'{count} {job}' for job, count in TARGETS.items())}", flush=True)
        until("Both instances are in service", lambda: is_state(prometheus, "UP"))
        boot = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)
        on_host(f"echo '3,{boot},{boot},-;{FAULT}' >> {KERNEL_LOG}")
        print(f"{'':11}the kernel log of {SERVING} gets: {FAULT}", flush=True)
        until(f"The gateway takes {SERVER} out of service", lambda: is_state(prometheus, "DOWN"))
        until("The alert InstanceSick is at alertmanager", lambda: bool(alerts(alertmanager)))
        print(f"{'':11}{alerts(alertmanager)[0]['annotations']['summary']}", flush=True)
        on_host(f"vllm-health clear {CHIP}")
        print(f"{'':11}a person says that the chip is well: vllm-health clear {CHIP}", flush=True)
        until(f"The proof passes, and {SERVER} is in service again", lambda: is_state(prometheus, "UP"))
        until("The alert has ended", lambda: not alerts(alertmanager))
    if load.failed or not load.answered:
        sys.exit(f"{load.answered} requests were answered, and {len(load.failed)} failed: {load.failed[:3]}")
    print(f"{'':11}{load.answered} requests were answered meanwhile, and none failed", flush=True)


class Load:
    """Clients that ask the gateway for one answer after the other."""

    def __init__(self, gateway: str) -> None:
        self.gateway, self.answered = gateway, 0
        self.failed: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _number in range(CLIENTS)]

    def _ask(self) -> None:
        headers = {"Content-Type": "application/json"}
        while not self._ended.is_set():
            request = urllib.request.Request(f"{self.gateway}/v1/completions", b'{"stream": true}', headers)  # noqa: S310
            try:
                with OPENER.open(request, timeout=60) as answer:
                    answer.read()
                self.answered += 1
            except OSError as exc:
                self.failed.append(str(exc))
                time.sleep(1)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def until(title: str, condition: Callable[[], bool]) -> None:
    """Wait for a step and print how long it took. Raises SystemExit after PATIENCE."""
    started = time.monotonic()
    while time.monotonic() - started < PATIENCE:
        try:
            if condition():
                print(f"{time.monotonic() - started:7.1f} s  {title}", flush=True)
                return
        except (OSError, ValueError, KeyError):
            pass  # not there yet
        time.sleep(1)
    # Before the lab is removed.
    print(f"{PATIENCE:7.1f} s  {title}: FAILED", flush=True)
    sys.exit(f"{title}: not within {PATIENCE} s")


def targets_up(prometheus: str) -> dict[str, int]:
    """Return how many targets of each job Prometheus reaches; a target that it does not reach adds a job ``down``."""
    found: dict[str, int] = {}
    for target in ask(f"{prometheus}/api/v1/targets?state=active")["data"]["activeTargets"]:
        job = target["labels"]["job"] if target["health"] == "up" else "down"
        found[job] = found.get(job, 0) + 1
    return found


def is_state(prometheus: str, state: str) -> bool:
    """Return whether Prometheus has read that the server has this state at the gateway."""
    expression = f'haproxy_server_status{{server="{SERVER}",state="{state}"}} == 1'
    found = ask(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    return bool(found["data"]["result"])


def alerts(alertmanager: str) -> list[Any]:
    """Return the alerts InstanceSick that alertmanager has."""
    name = urllib.parse.quote('alertname="InstanceSick"')
    found: list[Any] = ask(f"{alertmanager}/api/v2/alerts?active=true&filter={name}")
    return found


def ask(url: str) -> Any:
    """Return the JSON at a URL. Raises OSError and ValueError."""
    with OPENER.open(url, timeout=10) as answer:
        return json.load(answer)


def on_host(command: str) -> None:
    """Run a shell command on the host that serves. Raises CalledProcessError."""
    subprocess.run(("bin/lab", "ssh", SERVING, command), check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
