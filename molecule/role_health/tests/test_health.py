# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults in a stand-in for the kernel's log, while clients stream through the gateway: nobody loses a request."""

from __future__ import annotations

import csv
import itertools
import json
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from serving_host import playbook

from tests import lab_host

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/health"
GATEWAY = f"http://{os.environ['LAB_SUBNET_PREFIX']}.10:8443"
# The chips of chat and chat-2.
FIRST, SECOND = "0000:10:00.0", "0000:20:00.0"
CLIENTS = 4


class Load:
    """Clients that stream one answer after the other; which instance gave each, and what failed."""

    def __init__(self):
        self.served, self.failed, self.ended = [], [], threading.Event()
        self.threads = [threading.Thread(target=self.client) for _number in range(CLIENTS)]

    def client(self):
        while not self.ended.is_set():
            began = time.monotonic()
            try:
                request = urllib.request.Request(
                    f"{GATEWAY}/v1/completions", b'{"stream": true}', {"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=60) as answer:
                    lines = answer.read().decode().split()
                if lines.count("data:") != 30:
                    self.failed.append(f"{lines.count('data:')} tokens")
                self.served.append((began, lines[1]))
            except (OSError, urllib.error.URLError) as exc:
                self.failed.append(repr(exc))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def since(self, moment):
        """Return the instances that took requests after a moment."""
        return {name for began, name in list(self.served) if began > moment}


@pytest.fixture(scope="module")
def serving():
    return lab_host.connect("cuda-12")


@pytest.fixture(scope="module")
def gateway():
    return lab_host.connect("mirror")


@pytest.fixture(scope="module")
def numbers():
    return itertools.count(int(time.time()))


@pytest.fixture
def kernel_says(serving, numbers):
    def say(text):
        line = f"3,{next(numbers)},{int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)},-;{text}"
        serving.check_output("echo %s >> /var/lib/standin-kmsg", line)

    return say


@pytest.fixture(autouse=True)
def well(serving, gateway):
    """Begin and end with two instances that are well."""
    yield
    serving.run("rm -f /var/lib/standin-lost")
    serving.check_output("vllm-health clear all")
    until(lambda: "Every instance is well" in serving.check_output("vllm-health status"))
    until(lambda: states(gateway) == {"cuda-12--chat": "UP", "cuda-12--chat-2": "UP"})
    # The next test begins with a chip that has never come back, and an empty log.
    serving.check_output(
        "systemctl stop vllm-health; rm -f /var/lib/vllm-health/state.json*; : > /var/lib/standin-kmsg; "
        "systemctl start vllm-health"
    )


def states(gateway, column="status"):
    """Return the state of each server, or another column of HAProxy's counters."""
    program = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/haproxy/stats.sock'); "
        "s.sendall(b'show stat\\n'); print(b''.join(iter(lambda: s.recv(65536), b'')).decode())"
    )
    text = gateway.check_output("python3 -c %s", program)
    rows = [row for row in csv.DictReader(text[2:].splitlines()) if row["svname"].startswith("cuda-12")]
    return {row["svname"]: row[column].split()[0] if column == "status" else row[column] for row in rows}


def until(condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.3)


def table():
    return playbook("playbooks/gateway_status.yml", inventories=("-i", str(INVENTORY))).stdout


def test_the_service_runs_with_few_rights(serving):
    assert serving.service("vllm-health").is_running and serving.service("vllm-health").is_enabled
    assert (
        float(serving.check_output("systemd-analyze security vllm-health.service --json=off | tail -n 1").split()[6])
        < 5.5
    )
    assert serving.file("/etc/vllm-health.json").user == "root"


def test_metrics_name_host_chip_and_instance(serving):
    path = "/var/lib/prometheus/node-exporter/vllm-health.prom"
    labels = f'host="cuda-12",vendor="nvidia",model="l40s",chip="{SECOND}",instance="chat-2"'
    # The service writes every fifteen seconds.
    until(lambda: f"accel_utilization_ratio{{{labels}}} 0.37" in serving.check_output("cat %s", path))
    text = serving.check_output("cat %s", path)
    assert 'vllm_instance_healthy{host="cuda-12",instance="chat"} 1' in text


def test_a_fatal_fault_moves_new_requests_within_15_seconds_and_nobody_loses_one(serving, gateway, kernel_says):
    with Load() as load:
        until(lambda: load.since(0) == {"chat", "chat-2"})
        said = time.monotonic()
        kernel_says("NVRM: Xid (PCI:0000:20:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        until(lambda: states(gateway)["cuda-12--chat-2"] == "DOWN", 15)
        took = time.monotonic() - said
        # Answers that had begun run on, new ones come from the other instance.
        time.sleep(5)
        out = time.monotonic()
        time.sleep(8)
        assert load.since(out) == {"chat"}
    print(f"out of service after {took:.1f} s, {len(load.served)} answers")
    assert load.failed == []
    assert took < 15
    assert f"xid 79 of {SECOND}: The chip has fallen off the bus" in serving.check_output("vllm-health status")
    assert "sick: isolate_host xid 79" in states(gateway, "last_agt")["cuda-12--chat-2"]
    assert "sick: isolate_host" in " ".join(table().split())
    shown = playbook("playbooks/status.yml", "-e", "target_hosts=cuda-12", inventories=("-i", str(INVENTORY))).stdout
    assert "isolate_host xid 79" in " ".join(shown.split())


def test_an_error_of_a_program_and_an_unknown_code_move_nothing(serving, gateway, kernel_says):
    for code in (13, 31, 43, 45, 94, 4711):
        kernel_says(f"NVRM: Xid (PCI:0000:20:00): {code}, pid=7, name=python3, whatever")
    time.sleep(6)
    assert states(gateway) == {"cuda-12--chat": "UP", "cuda-12--chat-2": "UP"}
    assert "xid 4711" in serving.check_output("journalctl -u vllm-health --no-pager")


def test_of_two_sick_instances_the_sicker_leaves_and_the_last_stays(gateway, kernel_says):
    with Load() as load:
        kernel_says("NVRM: Xid (PCI:0000:10:00): 39, pid=7, CE0")
        until(lambda: states(gateway)["cuda-12--chat"] == "DOWN", 15)
        kernel_says("NVRM: Xid (PCI:0000:20:00): 64, Row Remapper: failed")
        until(lambda: states(gateway) == {"cuda-12--chat": "UP", "cuda-12--chat-2": "DOWN"}, 30)
        time.sleep(4)
        # Without requests for ten seconds, the instance would start again and be well.
        agent, shown = states(gateway, "last_agt")["cuda-12--chat"], table()
    assert load.failed == []
    assert "sick, and the service needs it: restart_instance xid 39" in agent
    assert "sick, and the service" in " ".join(shown.split())


def test_an_instance_that_its_fault_wants_started_again_starts_and_returns_by_itself(serving, gateway, kernel_says):
    before = serving.check_output("systemctl show vllm@chat-2 -p InvocationID")
    with Load() as load:
        kernel_says("NVRM: Xid (PCI:0000:20:00): 39, pid=7, CE0")
        until(lambda: states(gateway)["cuda-12--chat-2"] == "DOWN", 15)
        until(lambda: serving.check_output("systemctl show vllm@chat-2 -p InvocationID") != before)
        until(lambda: states(gateway) == {"cuda-12--chat": "UP", "cuda-12--chat-2": "UP"})
        assert "chat-2 is well again" in serving.check_output("journalctl -u vllm-health --no-pager")
    assert load.failed == []


def test_what_a_person_has_drained_stays_drained(serving, gateway, kernel_says):
    admin = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/haproxy/admin.sock'); "
        "s.sendall(b'set server chat/cuda-12--chat-2 state %s\\n'); s.recv(99)"
    )
    gateway.check_output("python3 -c %s", admin % "drain")
    try:
        kernel_says("NVRM: Xid (PCI:0000:20:00): 64, Row Remapper: failed")
        until(lambda: "xid 64" in serving.check_output("vllm-health status"))
        serving.check_output("vllm-health clear %s", SECOND)
        until(lambda: "Every instance is well" in serving.check_output("vllm-health status"))
        time.sleep(5)
        assert states(gateway)["cuda-12--chat-2"] in ("DRAIN", "MAINT")
    finally:
        gateway.check_output("python3 -c %s", admin % "ready")


def test_the_proof_must_pass_before_an_instance_returns(serving, gateway, kernel_says):
    kernel_says("NVRM: Xid (PCI:0000:20:00): 64, Row Remapper: failed")
    until(lambda: states(gateway)["cuda-12--chat-2"] == "DOWN", 15)
    serving.check_output("echo %s > /var/lib/standin-lost", SECOND)
    serving.check_output("vllm-health clear %s", SECOND)
    until(lambda: "the proof failed: the vendor's tool does not list" in serving.check_output("vllm-health status"))
    assert states(gateway)["cuda-12--chat-2"] == "DOWN"


def test_a_killed_service_and_damaged_state_lose_no_fault(serving, gateway, kernel_says):
    kernel_says("NVRM: Xid (PCI:0000:20:00): 64, Row Remapper: failed")
    until(lambda: states(gateway)["cuda-12--chat-2"] == "DOWN", 15)
    serving.check_output("systemctl kill -s KILL vllm-health; echo '{' > /var/lib/vllm-health/state.json")
    until(lambda: "was damaged" in serving.check_output("journalctl -u vllm-health --no-pager"))
    until(lambda: "xid 64" in serving.check_output("vllm-health status"))
    assert states(gateway)["cuda-12--chat-2"] == "DOWN"


def test_ten_thousand_lines_a_second_lose_nothing_and_cost_less_than_a_processor(serving, kernel_says):
    used = "awk '{print $14 + $15}' /proc/$(systemctl show vllm-health -p MainPID --value)/stat"

    def figure(name):
        text = serving.check_output("cat /var/lib/prometheus/node-exporter/vllm-health.prom")
        return next(line.split()[-1] for line in text.splitlines() if line.startswith(f"{name}{{"))

    # The service has just started, and the log is empty.
    until(lambda: figure("health_kernel_lines_total") == "0")
    before = int(serving.check_output(used))
    with Load() as load:
        # Bare lines, without a number that the service has seen before: each one is searched for faults.
        noise = """python3 -c 'print("audit: NVRM nothing to see here\\n" * 10000, end="")' >> /var/lib/standin-kmsg"""
        serving.check_output(f"for second in 1 2 3 4 5; do {noise}; sleep 0.8; done")
        kernel_says("NVRM: Xid (PCI:0000:20:00): 64, Row Remapper: failed")
        until(lambda: "xid 64" in serving.check_output("vllm-health status"), 15)
        seconds = (int(serving.check_output(used)) - before) / 100
    assert load.failed == []
    until(lambda: figure("health_kernel_lines_total") == "50001")
    print(f"50,001 lines: {seconds:.2f} s of a processor")
    assert figure("health_kernel_lines_lost_total") == "0" and seconds < 5


def test_the_configuration_is_json_without_secrets(serving):
    found = json.loads(serving.check_output("cat /etc/vllm-health.json"))
    assert found["chips"] == {"chat": [FIRST], "chat-2": [SECOND]}
    assert "xid" in found["faults"]["kinds"]
