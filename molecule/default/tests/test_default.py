# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands on the host after site.yml, and what it does when it is stopped, killed and rebooted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest
from serving_host import INVENTORIES, SECRETS, TOP, Stream, chat, journal, playbook, wait_active

from tests import lab_host


def test_unit_runs_now_and_at_boot(serving):
    unit = serving.service("vllm@chat.service")
    assert unit.is_running, journal(serving)
    assert unit.is_enabled


def test_first_run_started_the_instance_once(serving):
    assert serving.check_output("journalctl -u vllm@chat --no-pager | grep -c 'Started vllm@chat'") == "1"


def test_it_answers(serving):
    assert chat() == "The fleet is ready."


def test_it_runs_as_its_own_user(serving):
    pid = serving.check_output("systemctl show -P MainPID vllm@chat")
    assert serving.check_output("ps -o user= -p %s", pid).strip() == "vllm"


@pytest.mark.parametrize(
    ("path", "mode", "group"),
    [("chat.env", 0o640, "vllm"), ("chat.yaml", 0o640, "vllm"), ("chat.secrets", 0o600, "root")],
)
def test_files_have_the_narrowest_mode(serving, path, mode, group):
    file = serving.file(f"/etc/vllm/{path}")
    assert (file.mode, file.user, file.group) == (mode, "root", group)


def test_hardening_is_at_most_three(serving):
    report = serving.check_output("systemd-analyze security --no-pager vllm@chat.service")
    exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", report)[1])
    assert exposure <= 3.0, report


def test_every_directive_left_open_has_its_reason(serving):
    text = serving.file("/etc/systemd/system/vllm@.service").content_string
    report = serving.check_output("systemd-analyze security --no-pager vllm@chat.service")
    for line in report.splitlines():
        if line.startswith("✗"):
            directive = re.match(r"✗ (\w+)", line)[1]
            assert directive in text, f"{directive} is open and the unit does not say why"


def test_a_model_that_is_not_whole_is_not_started(serving):
    """The unit asserts its inputs: without the model's name there is no start."""
    serving.check_output("mkdir -p /var/lib/vllm/half && cp /var/lib/vllm/chat/serve /var/lib/vllm/half/")
    serving.check_output("cp /etc/vllm/chat.env /etc/vllm/half.env && cp /etc/vllm/chat.yaml /etc/vllm/half.yaml")
    done = serving.run("systemctl start vllm@half")
    serving.check_output("rm -r /var/lib/vllm/half /etc/vllm/half.*")
    assert done.rc != 0
    assert "ssert" in done.stderr


def test_nothing_of_the_secrets_is_to_be_seen(serving, through_ansible):
    seen = serving.check_output(
        "ps auxww; systemctl show vllm@chat; systemctl cat vllm@chat; journalctl --no-pager; "
        "cat /etc/vllm/chat.yaml /etc/vllm/chat.env /var/lib/vllm/chat/serve; grep -r canary /var/cache/vllm || true"
    )
    facts = json.dumps(through_ansible.ansible("ansible.builtin.setup"))
    for secret in SECRETS:
        assert secret not in seen
        assert secret not in facts


def test_output_of_a_run_that_changes_the_key_does_not_show_it(serving):
    new = "canary-rotated-91ab"
    done = playbook(
        "site.yml", "-vvv", "--check", "--diff", "--limit", "cpu-12",
        "-e", json.dumps({"vllm_secrets": {"chat": {"VLLM_API_KEY": new}}}),
    )  # fmt: skip
    # The command line of this very test is echoed by nothing; what is left is what the roles print.
    assert done.returncode == 0, done.stdout + done.stderr
    for secret in (*SECRETS, new):
        assert secret not in done.stdout + done.stderr


def test_check_mode_announces_nothing_on_a_finished_host(serving):
    done = playbook("site.yml", "--check", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"changed=(\d+)", done.stdout)) == {"0"}, done.stdout


def test_the_health_service_watches(serving):
    """The inventory says site_health: true."""
    assert serving.service("vllm-health").is_running
    assert serving.check_output("vllm-health status") == "Every instance is well."


def test_key_is_wanted(serving):
    status = serving.check_output("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8000/v1/models")
    assert status == "401"


def test_verify_prints_one_document(serving):
    command = [sys.executable, "tools/verify.py", *INVENTORIES, "--limit", "cpu-12"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert {check["name"] for check in document["checks"]} >= {
        "models",
        "chat",
        "chat_stream",
        "responses",
        "completions",
    }


@pytest.mark.long
def test_engine_killed_comes_back_by_itself(serving):
    serving.check_output("pkill -9 -f VLLM::Engine[C]ore")
    deadline = time.monotonic() + 400
    while serving.check_output("systemctl show -P NRestarts vllm@chat") == "0":
        assert time.monotonic() < deadline, journal(serving)
        time.sleep(1)
    wait_active(serving)
    assert chat() == "The fleet is ready."


def test_stop_lets_a_running_request_finish(serving):
    with lab_host.prepared("cpu-12", "systemctl stop --no-block vllm@chat") as stop:
        stream = Stream()
        stop()
    tokens = stream.tokens()
    serving.check_output("systemctl stop vllm@chat")
    result = serving.check_output("systemctl show -P Result vllm@chat")
    said = journal(serving)
    serving.check_output("systemctl start vllm@chat")
    assert (tokens, result) == (Stream.LENGTH, "success"), said
    assert "Stopping: no request runs" in said


def test_reboot_needs_no_ansible(serving):
    subprocess.run([sys.executable, "tools/lab/__main__.py", "restart", "cpu-12"], cwd=TOP, env=os.environ, check=True)
    wait_active(serving)
    assert chat() == "The fleet is ready."
