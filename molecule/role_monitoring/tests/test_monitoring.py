# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node exporter: what it serves and where, what is refused, and what removing leaves. The last test removes it."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/role"
UNIT = "prometheus-node-exporter.service"
OCTETS = {"cpu-12": 12, "cpu-13": 13}


@pytest.fixture
def address(host):
    return f"{os.environ['LAB_SUBNET_PREFIX']}.{OCTETS[host.check_output('hostname')]}"


def play(host, *words, playbook="playbooks/remove.yml"):
    command = ["ansible-playbook", "-i", INVENTORY, TOP / playbook, "-l", host.check_output("hostname"), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, timeout=120, check=False
    )
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def converge(host, *words, **variables):
    return play(host, *words, "-e", json.dumps(variables), playbook="molecule/role_monitoring/converge.yml")


def metrics(address):
    with urllib.request.urlopen(f"http://{address}:9100/metrics", timeout=20) as answer:
        return answer.read().decode()


def test_prometheus_reads_the_host_and_what_the_health_service_writes(host, address):
    text = metrics(address)
    name = host.check_output("hostname")
    assert f'accel_temperature_celsius{{chip="0000:10:00.0",host="{name}"}} 41' in text
    assert "node_textfile_scrape_error 0" in text and "node_memory_MemAvailable_bytes " in text
    # The unit sees the file systems of the host as they are, however little it may write itself.
    assert 'node_filesystem_readonly{device="overlay",fstype="overlay",mountpoint="/"} 0' in text
    assert "node_zfs" not in text and 'node_network_up{device="lo"}' in text
    assert 'node_network_receive_bytes_total{device="lo"}' not in text


def test_it_listens_on_its_address_alone_and_is_not_root(host, address):
    assert host.service(UNIT).is_running and host.service(UNIT).is_enabled
    assert not host.socket("tcp://127.0.0.1:9100").is_listening and host.socket(f"tcp://{address}:9100").is_listening
    assert (
        host.check_output("ps -o user= -C node_exporter,prometheus-node-exporter,prometheus-node").split()[0] != "root"
    )


def test_without_a_word_about_the_address_it_would_listen_on_loopback(host):
    shown = host.file(f"/etc/systemd/system/{UNIT}").content_string
    role = (TOP / "roles/monitoring/defaults/main.yml").read_text()
    assert "monitoring_node_listen: 127.0.0.1" in role and "--web.listen-address=" in shown


def test_a_port_of_another_process_is_refused_before_anything_changes(host):
    status, told = converge(host, monitoring_node_port=22)
    assert status and "monitoring_node_port 22 is in use by process" in told and "changed=0" in told, told


def test_metrics_that_the_exporter_would_not_read_are_refused(host):
    status, told = converge(host, health_metrics_file="/srv/metrics/health.prom")
    assert status and "health_metrics_file is /srv/metrics/health.prom, and monitoring_textfile_dir" in told, told


def test_check_mode_shows_another_port_and_changes_nothing(host, address):
    status, told = converge(host, "--check", "--diff", monitoring_node_port=9200)
    assert (
        status == 0 and f"+ExecStart=/usr/bin/prometheus-node-exporter --web.listen-address={address}:9200" in told
    ), told
    assert metrics(address)


def test_removing_stops_it(host, address):
    status, told = play(host, "-e", "remove_everything=true")
    assert status == 0 and "monitoring" in told, told
    assert not host.socket(f"tcp://{address}:9100").is_listening and not host.service(UNIT).is_enabled
    assert not host.file(f"/etc/systemd/system/{UNIT}").exists
