# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands on hosts that serve from containers, and what it does when changed, killed, stopped and rebooted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serving_host import SECRETS, TOP

ANSWER = "The fleet is ready."
ARGS = {"kv-cache-memory-bytes": "192M", "distributed-executor-backend": "uni"}
SMOKE = {
    "recipe": "baremetal/gpt-oss-smoke",
    "host": "0.0.0.0",
    "args": ARGS,
    "env": {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
}


def test_every_instance_answers_the_controller(serving):
    assert [instance.chat() for instance in serving] == [ANSWER] * 3


def test_verify_asks_every_instance_on_its_host():
    command = [sys.executable, "tools/verify.py", "-i", ".config/molecule/inventory/container", "--limit", "inference"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["instances"]) == 3


def test_first_run_started_every_instance_once(serving):
    assert [instance.starts() for instance in serving] == [1, 1, 1]


def test_podman_has_a_quadlet_and_docker_a_plain_unit(serving):
    docker, podman, second = serving
    assert docker.show("FragmentPath") == "/etc/systemd/system/vllm@chat.service"
    assert podman.show("SourcePath") == "/etc/containers/systemd/vllm@chat.container"
    assert second.show("SourcePath") == "/etc/containers/systemd/vllm@second.container"


def test_the_unit_is_wanted_at_boot(chat_instance):
    assert chat_instance.show("WantedBy") == "multi-user.target"


def test_the_process_is_in_a_container_as_the_user_vllm(chat_instance):
    host, pid = chat_instance.host, chat_instance.pid()
    assert host.check_output("ps -o user= -p %s", pid).strip() == "vllm"
    assert chat_instance.inspect()["Id"] in host.check_output("cat /proc/%s/cgroup", pid)
    # Its files are the image's: the host has no virtual environment.
    assert not host.file("/opt/vllm").exists
    assert host.check_output("readlink /proc/%s/exe", pid) == "/usr/bin/python3.11"


def test_the_image_is_the_one_that_was_asked_for(serving):
    index = json.loads(Path(os.environ["LAB_HOME"], "mirror/images/lab/vllm-cpu/index.json").read_text())
    digest = index["manifests"][0]["digest"]
    docker, podman, _second = serving
    assert docker.inspect()["Config"]["Image"] == f"mirror:5000/lab/vllm-cpu@{digest}"
    assert podman.inspect()["ImageName"] == "mirror:5000/lab/vllm-cpu:0.32.0"


@pytest.mark.parametrize("path", ["/srv/models/x", "/srv/encodings/x", "/etc/vllm/x", "/usr/x"])
def test_the_container_can_write_neither_weights_nor_anything_of_the_image(chat_instance, path):
    inside = f"{chat_instance.engine} exec -u 0 {chat_instance.container}"
    assert chat_instance.host.run(f"{inside} touch {path}").rc != 0


def test_its_cache_is_on_the_host(chat_instance):
    files = chat_instance.host.check_output("find /var/cache/vllm/chat -user vllm -type f | head -3")
    assert files


def test_the_process_can_gain_no_privileges(chat_instance):
    status = chat_instance.host.check_output("cat /proc/%s/status", chat_instance.pid())
    assert re.search(r"(?m)^NoNewPrivs:\s+1$", status)
    # Of all that root may, CAP_SYS_NICE is left: it binds memory to one NUMA node.
    for kind in ("Eff", "Bnd"):
        assert int(re.search(rf"(?m)^Cap{kind}:\s+([0-9a-f]+)$", status)[1], 16) in (0, 1 << 23), status


def test_nothing_of_the_secrets_is_to_be_seen(chat_instance):
    seen = chat_instance.host.check_output(
        "ps auxww; systemctl show vllm@chat; systemctl cat vllm@chat; journalctl --no-pager; "
        "cat /etc/vllm/*.yaml /etc/vllm/*.env /etc/containers/systemd/* /var/lib/vllm/*/serve 2>/dev/null; "
        "grep -r canary /var/cache/vllm || true"
    )
    for secret in SECRETS:
        assert secret not in seen


def test_key_is_wanted(chat_instance):
    address = "http://127.0.0.1:8000/v1/models"
    assert chat_instance.host.check_output("curl -s -o /dev/null -w '%%{http_code}' %s", address) == "401"


@pytest.mark.long
def test_check_mode_announces_nothing_on_finished_hosts(serving, playbook):
    done = playbook("site.yml", "--check", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"changed=(\d+)", done.stdout)) == {"0"}, done.stdout


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        ({"vllm_image": "mirror:5000/lab/vllm-gpu:0.32.0"}, ("mirror:5000/lab/vllm-gpu:0.32.0",)),
        ({"vllm_engine": "dokcer"}, ("vllm_engine", "dokcer")),
        (
            {"vllm_engine": "podman", "container_runtime_engine": "docker"},
            ("vllm_engine is podman, and container_runtime_engine is docker; omit vllm_engine",),
        ),
        ({"vllm_runtime": "contaner"}, ("contaner", "container")),
    ],
    ids=["image", "engine", "engines", "runtime"],
)
def test_wrong_input_is_refused_before_anything_changes(serving, playbook, variables, parts):
    before = [instance.starts() for instance in serving]
    done = playbook("site.yml", "--limit", "inference", "-e", json.dumps(variables))
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    for part in parts:
        assert part in re.sub(r"\s+", " ", output), output
    assert set(re.findall(r"changed=(\d+)", done.stdout)) <= {"0"}, output
    assert [instance.starts() for instance in serving] == before


@pytest.mark.long
def test_a_changed_flag_restarts_that_instance_only_and_once(serving, playbook):
    instances = {
        "chat": {**SMOKE, "port": 8000, "args": {**ARGS, "max-num-seqs": 8}},
        "second": {**SMOKE, "port": 8001},
    }
    before = [instance.starts() for instance in serving]
    done = playbook("site.yml", "--limit", "cpu-13", "-e", json.dumps({"vllm_instances": instances}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [instance.starts() - count for instance, count in zip(serving, before, strict=True)] == [0, 1, 0]
    assert serving[1].chat() == ANSWER
    assert "max-num-seqs: 8" in serving[1].host.check_output("cat /etc/vllm/chat.yaml")


@pytest.mark.long
def test_containers_that_are_killed_come_back_by_themselves(serving):
    instances = serving[:2]
    before = [instance.inspect()["Id"] for instance in instances]
    for instance in instances:
        instance.host.check_output("%s kill %s", instance.engine, instance.container)
    for instance, container in zip(instances, before, strict=True):
        instance.wait_started_again(container)
        assert instance.chat() == ANSWER


# The same as in the scenario `default`, through the engines' own units: two minutes.
@pytest.mark.long
def test_stop_lets_a_running_request_finish_and_a_reboot_starts_it_again(serving):
    instances = serving[:2]
    streams = [instance.stream_and_stop() for instance in instances]
    assert all(stream.tokens() == stream.LENGTH for stream in streams)
    for instance in instances:
        instance.host.check_output("systemctl stop %s", instance.unit)
        assert (instance.show("ActiveState"), instance.show("Result")) == ("inactive", "success")
        assert "Stopping: no request runs" in instance.journal()
        assert instance.host.check_output("%s ps -aq -f name=%s", instance.engine, instance.container) == ""

    for name in ("cpu-12", "cpu-13"):
        subprocess.run([sys.executable, "tools/lab/__main__.py", "restart", name], cwd=TOP, env=os.environ, check=True)
    for instance in serving:
        instance.wait_active()
        assert instance.chat() == ANSWER
