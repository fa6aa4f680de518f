# SPDX-License-Identifier: GPL-3.0-or-later
"""status.yml on a thousand hosts, of which it contacts none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
CHAT = {"chat": {"recipe": "openai/gpt-oss-20b", "port": 8000}}


def run(site, gateways, *words):
    # An address for documentation: contacting a host would fail.
    hosts = {
        f"gpu-{number}": {"ansible_host": "192.0.2.1", "accelerator": "h200", "vllm_instances": CHAT}
        for number in range(1000)
    }
    groups = {"inference": {"hosts": hosts}, "gateways": {"hosts": gateways}}
    (site / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    return play(site, *words)


def play(site, *words, playbook=TOP / "playbooks/status.yml"):
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-i", site / "hosts.json", playbook, *words]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def test_a_gateway_that_cannot_be_read_is_named_below_the_table_and_is_no_success(tmp_path):
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_retries": 0}
    done = run(tmp_path, {"gw-1": here, "gw-2": gone}, "-e", f"status_page={tmp_path / 'fleet.html'}")
    assert done.returncode == 2, done.stdout
    assert "not read: gw-1, gw-2; the reasons stand above" in done.stdout
    assert "1,000 hosts" in done.stdout
    assert "gw-1 was not read" in done.stdout
    assert "gw-2 was not read" in done.stdout
    assert (tmp_path / "fleet.html").is_file()


def test_the_instances_of_a_site_without_gateways_are_asked(tmp_path):
    """Here none is installed; the other host is off."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_retries": 0}
    hosts = {"gpu-a": {**here, "vllm_instances": CHAT}, "gpu-b": {**gone, "vllm_instances": CHAT}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"inference": {"hosts": hosts}}}}))
    done = play(tmp_path)
    assert done.returncode == 2 and "  0 of 2 answer" in done.stdout, done.stdout + done.stderr
    assert "gpu-a, chat: instance chat is not installed on this host" in done.stdout
    assert "not read: gpu-b; the reasons stand above" in done.stdout


def test_a_gateway_and_a_host_that_never_answer_keep_nobody_from_the_table(tmp_path):
    """They let ssh in, and then say nothing."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 30\n")
    ssh.chmod(0o755)
    text = (TOP / "playbooks/status.yml").read_text()
    (tmp_path / "status.yml").write_text(re.sub(r"timeout: \d+\n", "timeout: 3\n", text))
    mute = {"ansible_host": "127.0.0.1", "ansible_ssh_executable": str(ssh), "vllm_instances": CHAT}
    for groups in (
        {"gateways": {"hosts": {"gw-1": mute}}, "inference": {"hosts": {"gpu-a": mute}}},
        {"inference": {"hosts": {"gw-1": mute, "gpu-a": mute}}},
    ):
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
        done = play(tmp_path, "-e", "status_faults=true", playbook=tmp_path / "status.yml")
        assert done.returncode == 2 and "not read: gpu-a, gw-1; the reasons stand above" in done.stdout, done.stdout


def test_the_starts_of_the_instances_stand_below_the_table(tmp_path, monkeypatch):
    recorded = TOP / "tests/fixtures/journal/start-0.25.1.txt"
    scripts = {"systemctl": "printf 'Id=vllm@chat.service\\nInvocationID=abc\\n'", "journalctl": f"cat {recorded}"}
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    done = run(tmp_path, {"gw-1": here}, "-e", "status_starts=true", "-e", "target_hosts=gw-1")
    # It has no HAProxy.
    assert "not read: gw-1; the reasons stand above" in done.stdout
    assert "gw-1, chat: started in 74 s: imports 6.2, configuration 7," in done.stdout


def test_the_last_fault_of_each_service_is_read_on_the_hosts(tmp_path, monkeypatch):
    line = "1795000000.5 gpu-a vllm-health[7]: chat is sick: xid 64 of 0000:5d:00.0: bad (isolate_host, back by hand)"
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    hosts = {"gpu-a": {**here, "vllm_instances": CHAT}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"inference": {"hosts": hosts}}}}))
    done = play(tmp_path, "-e", "status_faults=true")
    assert "xid 64 of 0000:5d:00.0" in " ".join(done.stdout.split()), done.stdout + done.stderr


def test_a_host_that_was_not_read_for_one_question_is_named_although_it_answered_another(tmp_path, monkeypatch):
    for name, script in {"journalctl": "exit 0", "systemctl": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"inference": {"hosts": {"gpu-a": here}}}}}))
    done = play(tmp_path, "-e", "status_faults=true", "-e", "status_starts=true")
    assert "not read: gpu-a; the reasons stand above" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("words", [("-e", "status_host=all")])
def test_a_misspelt_option_is_refused(tmp_path, words):
    done = run(tmp_path, {"gw-1": {"ansible_connection": "local"}}, *words)
    assert done.returncode != 0 and "nearest: 'target_hosts'" in done.stdout.replace("''", "'"), done.stdout
