# SPDX-License-Identifier: GPL-3.0-or-later
"""The node exporter: what it serves and where, what is refused, and what removing leaves.

The tests that need a playbook run on one host: refusals on Debian 12, and the removal, which is the last, on Debian 13.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests import lab_host

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/role"
UNIT = "prometheus-node-exporter.service"
OCTETS = {"cpu-12": 12, "cpu-13": 13}


def address_of(name):
    return f"{os.environ['LAB_SUBNET_PREFIX']}.{OCTETS[name]}"


@pytest.fixture
def address(host):
    return address_of(host.check_output("hostname"))


def play(name, *words, playbook="playbooks/remove.yml"):
    command = ["ansible-playbook", "-i", INVENTORY, TOP / playbook, "-l", name, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, timeout=120, check=False
    )
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def converge(*words, **variables):
    return play("cpu-12", *words, "-e", json.dumps(variables), playbook="molecule/role_monitoring/converge.yml")


def metrics(address):
    with urllib.request.urlopen(f"http://{address}:9100/metrics", timeout=20) as answer:
        return answer.read().decode()


def test_prometheus_reads_the_host_and_what_the_health_service_writes(host, address):
    text = metrics(address)
    name = host.check_output("hostname")
    assert f'accel_temperature_celsius{{chip="0000:10:00.0",host="{name}"}} 41' in text
    assert "node_textfile_scrape_error 0" in text and "node_memory_MemAvailable_bytes " in text
    # However little the unit may do itself, it sees the clock, and which file systems of the host are read-only.
    assert 'node_scrape_collector_success{collector="timex"} 1' in text
    readonly = re.findall(r'node_filesystem_readonly\{.*mountpoint="/var/lib/containers"\} (\d)', text)
    assert readonly == ["0"]
    assert "node_zfs" not in text and 'node_network_up{device="lo"}' in text
    assert 'node_network_receive_bytes_total{device="lo"}' not in text


def test_it_listens_on_its_address_alone_and_is_not_root(host, address):
    assert host.service(UNIT).is_running and host.service(UNIT).is_enabled
    assert not host.socket("tcp://127.0.0.1:9100").is_listening and host.socket(f"tcp://{address}:9100").is_listening
    assert (
        host.check_output("ps -o user= -C node_exporter,prometheus-node-exporter,prometheus-node").split()[0] != "root"
    )


def test_a_port_of_another_process_is_refused_before_anything_changes():
    status, told = converge(monitoring_node_port=22)
    assert status and "monitoring_node_port 22 is in use by process" in told and "changed=0" in told, told


def test_metrics_that_the_exporter_would_not_read_are_refused():
    status, told = converge(health_metrics_file="/srv/metrics/health.prom")
    assert status and "health_metrics_file is /srv/metrics/health.prom, and monitoring_textfile_dir" in told, told


def test_check_mode_shows_another_port_and_changes_nothing():
    status, told = converge("--check", "--diff", monitoring_node_port=9200)
    address = address_of("cpu-12")
    assert (
        status == 0 and f"+ExecStart=/usr/bin/prometheus-node-exporter --web.listen-address={address}:9200" in told
    ), told
    assert metrics(address)


def test_removing_stops_it():
    removed = lab_host.connect("cpu-13")
    status, told = play("cpu-13", "-e", "remove_everything=true")
    assert status == 0 and "monitoring" in told, told
    assert not removed.socket(f"tcp://{address_of('cpu-13')}:9100").is_listening
    assert not removed.service(UNIT).is_enabled and not removed.file(f"/etc/systemd/system/{UNIT}").exists
