# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate is renewed, and the run ends in between: HAProxy starts with what lies there after each task."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.certificate_host import issue_from_site_ca

from tests.fakes.gateways import HAPROXY, ROLE
from tests.fakes.inventory_plugin import command

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CONFIG = """
defaults
    mode http
    timeout client 1s
    timeout server 1s
    timeout connect 1s
frontend gateway
    bind 127.0.0.1:18443 ssl crt {} alpn h2,http/1.1
    http-request return status 200
"""
TASKS = [
    task
    for task in yaml.safe_load((ROLE / "tasks/configure.yml").read_text())
    if "certificate and" in task["name"] or "certificate's key" in task["name"]
]


@pytest.fixture
def installed(tmp_path):
    """A gateway's certificate and key as the releases up to 0.22.0 left them."""
    issued = issue("gw.example")(tmp_path)
    path = tmp_path / "host" / "gateway.pem"
    path.parent.mkdir()
    shutil.copy(issued.certificate, path)
    shutil.copy(issued.key, f"{path}.key")
    (tmp_path / "haproxy.cfg").write_text(CONFIG.format(path))
    return path


def issue(*names):
    return lambda directory: issue_from_site_ca(str(directory / "ca"), "gw", list(names), 400, 30, False)


def run(directory, path, tasks, found=None, has_tls=True):
    """Run tasks of the role on this machine; return the number of those that changed something."""
    found = found or {"key": str(directory / "ca/gw.key"), "certificate": str(directory / "ca/gw.crt")}
    variables = {
        "ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable,
        "__gateway_paths": {"certificate": str(path)}, "__gateway_has_tls": has_tls, "__gateway_certificate": found,
    }  # fmt: skip
    handlers = [{"name": "Reload HAProxy", "ansible.builtin.command": "true", "changed_when": False}]
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks, "handlers": handlers}
    (directory / "play.yml").write_text(json.dumps([play]))
    done = command(
        directory, "ansible-playbook", str(directory / "play.yml"), "-v", "--diff", ANSIBLE_STDOUT_CALLBACK="default"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PRIVATE KEY" not in done.stdout + done.stderr
    return done.stdout.count("changed: [localhost]")


def is_valid(directory):
    words = [HAPROXY, "-c", "-q", "-f", str(directory / "haproxy.cfg")]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def test_haproxy_starts_after_each_task_of_a_renewal(tmp_path, installed):
    assert is_valid(tmp_path)
    assert not any("loop" in task for task in TASKS), "a run may end between two entries too"
    for names in (["gw.example", "second.example"], ["gw.example", "third.example"]):
        assert issue(*names)(tmp_path).reason
        for number in range(1, len(TASKS) + 1):
            run(tmp_path, installed, TASKS[:number])
            assert is_valid(tmp_path), f"after {TASKS[number - 1]['name']}"
            served = subprocess.run(
                ["openssl", "x509", "-noout", "-text"], stdin=installed.open(), capture_output=True, check=True
            )
            assert names[1].encode() in served.stdout
    assert [(path.name, path.stat().st_mode & 0o777) for path in installed.parent.iterdir()] == [("gateway.pem", 0o600)]
    assert run(tmp_path, installed, TASKS) == 0


def test_a_file_of_the_site_that_has_both_is_installed_once(tmp_path, installed):
    text = (tmp_path / "ca/gw.key").read_text() + (tmp_path / "ca/gw.crt").read_text()
    both = tmp_path / "both.pem"
    both.write_text(text)
    run(tmp_path, installed, TASKS, {"key": str(both), "certificate": str(both)})
    assert installed.read_text().strip() == text.strip() and is_valid(tmp_path)


def test_without_tls_the_key_of_earlier_releases_goes_after_the_configuration_that_named_it(tmp_path, installed):
    names = [task["name"] for task in yaml.safe_load((ROLE / "tasks/configure.yml").read_text())]
    written = next(number for number, name in enumerate(names) if "configuration of HAProxy" in name)
    assert names.index(TASKS[-1]["name"]) > written
    skipped = {"changed": False, "skipped": True}
    assert run(tmp_path, installed, TASKS, skipped, has_tls=False) == 1
    assert [path.name for path in installed.parent.iterdir()] == ["gateway.pem"]
    assert run(tmp_path, installed, TASKS, skipped, has_tls=False) == 0
