# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebooks in the real ansible-rulebook, with webhooks as Alertmanager and NetBox send them.

Skipped where ansible-rulebook is not installed. The inventory has no gateway: drain.yml and undrain.yml end with their
message about that, after they were started with the right variables.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PROGRAM = shutil.which("ansible-rulebook")
pytestmark = [pytest.mark.long, pytest.mark.skipif(PROGRAM is None, reason="ansible-rulebook is not installed")]
TOKEN, SECRET = "token-of-alertmanager", "secret-of-netbox"
HOSTS = """
all:
  vars: {ansible_connection: local}
  children:
    inference: {hosts: {gpu-a-01: {accelerator: cpu}}}
    gateways: {hosts: {}}
"""
VARIABLES = 'vllm_release: "0.33.0"\nvllm_instances: {chat: {recipe: baremetal/gpt-oss-smoke, port: 8000}}\n'
RECORDER = """
DOCUMENTATION = "name: recorder\\ntype: aggregate\\nshort_description: Records runs\\ndescription: Records runs"
import json, os
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "recorder"

    def v2_playbook_on_start(self, playbook):
        self.name = os.path.basename(playbook._file_name)

    def v2_playbook_on_play_start(self, play):
        given = dict(play.get_variable_manager().extra_vars)
        if self.name:
            given.pop("ansible_eda")
            with open(os.environ["RECORD"], "a") as record:
                record.write(json.dumps([self.name, given], default=str) + "\\n")
        self.name = ""
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def write_site(site):
    (site / "group_vars").mkdir(parents=True)
    (site / "hosts.yml").write_text(HOSTS)
    (site / "group_vars/all.yml").write_text(VARIABLES)
    (site / "z-accelerators.yml").write_text("plugin: baremetal.inference.accelerators\n")
    return site


class Rulebook:
    """A running ansible-rulebook and what it has started; without an inventory, for one host without a gateway."""

    def __init__(self, top, name, inventory=None):
        self.top, self.port, self.record = top, free_port(), top / "record"
        site = inventory or write_site(top / "site")
        (top / "callbacks").mkdir()
        (top / "callbacks/recorder.py").write_text(RECORDER)
        (top / "vars.yml").write_text(f"events_port: {self.port}\n")
        environment = {
            **os.environ,
            "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
            "HOME": str(top),
            "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"),
            "ANSIBLE_CALLBACK_PLUGINS": str(top / "callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "recorder",
            "ANSIBLE_DIFF_ALWAYS": "true",
            "ACCELERATORS_DISCOVERY_CACHE": str(top / "discovery.json"),
            "RECORD": str(self.record),
            "ALERTMANAGER_TOKEN": TOKEN,
            "NETBOX_SECRET": SECRET,
            "RENDER_DIR": str(top / "rendered"),
        }
        names = {"chips": "ALERTMANAGER_TOKEN", "netbox": "NETBOX_SECRET,RENDER_DIR"}[name]
        command = [PROGRAM, "-r", f"baremetal.inference.{name}", "-i", str(site), "--vars", "vars.yml", "-E", names]
        self.log = (top / "log").open("w")
        self.process = subprocess.Popen(command, cwd=top, env=environment, stdout=self.log, stderr=self.log)

    def wait(self, until, seconds=120.0):
        end = time.monotonic() + seconds
        while not until():
            assert self.process.poll() is None and time.monotonic() < end, (self.top / "log").read_text()
            time.sleep(0.3)

    def listens(self):
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self.port)) == 0

    def send(self, body, **headers):
        content = json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers = {"Content-Type": "application/json", **headers}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{self.port}/", content, headers), timeout=60
            ) as answer:
                return answer.status
        except urllib.error.HTTPError as exc:
            return exc.code

    def runs(self):
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


@pytest.fixture
def rulebook(request, tmp_path):
    started = Rulebook(tmp_path, request.param)
    try:
        started.wait(started.listens)
        yield started
    finally:
        started.end()


def alert(status, host, name="InstanceSick"):
    return {
        "status": status,
        "labels": {"alertname": name, "host": host, "instance": "chat", "chip": "0000:5d:00.0", "fault": "xid 64"},
        "annotations": {"summary": "chat is sick"},
        "startsAt": "2026-11-25T05:12:40Z",
        "fingerprint": "ab",
    }


@pytest.mark.parametrize("rulebook", ["chips"], indirect=True)
def test_a_sick_chip_drains_its_host_and_the_end_returns_it_after_a_proof(rulebook):
    harm = rulebook.top / "harm"
    alerts = [
        alert("firing", "gpu-a-01"),
        alert("firing", "gpu-a-01", "QueueLong"),
        alert("firing", f"{{{{ lookup('pipe', 'touch {harm}') }}}}"),
        alert("firing", "gpu-a-01:all"),
        alert("resolved", "gpu-a-01"),
        alert("firing", "elsewhere"),
        alert("firing", "all"),
    ]
    message = {"version": "4", "status": "firing", "receiver": "rulebook", "alerts": alerts}
    assert rulebook.send(message) == 401 and rulebook.send(message, Authorization="Bearer other") == 401
    assert rulebook.send(message, Authorization=f"Bearer {TOKEN}") == 200
    rulebook.wait(lambda: len(rulebook.runs()) >= 4)
    drained = {"drain_event": "alertmanager", "drain_reason": "a sick chip, reported by Alertmanager"}
    assert rulebook.runs() == [
        ["drain.yml", {**drained, "drain_hosts": "gpu-a-01"}],
        ["undrain.yml", {"drain_event": "alertmanager", "drain_hosts": "gpu-a-01", "undrain_proof": True}],
        # The inventory has no such host, so the plays are empty.
        ["drain.yml", {**drained, "drain_hosts": "elsewhere"}],
        ["drain.yml", {**drained, "drain_hosts": "all"}],
    ]
    log = rulebook.top / "log"
    rulebook.wait(lambda: 'drain_hosts: \\"all\\" of the event' in log.read_text())
    assert "gpu-a-01: no gateway sends requests to it" in log.read_text()
    assert not harm.exists()


@pytest.mark.parametrize("rulebook", ["netbox"], indirect=True)
def test_a_changed_device_is_discovered_and_its_files_are_shown(rulebook):
    def device(model, name):
        return {"event": "updated", "model": model, "username": "alice", "data": {"id": 1, "name": name}}

    def sign(body):
        return hmac.new(SECRET.encode(), json.dumps(body).encode(), hashlib.sha512).hexdigest()

    rack, host = device("rack", "gpu-a-01"), device("device", "gpu-a-01")
    assert rulebook.send(host, X_Hook_Signature=sign(rack)) != 200
    assert rulebook.send(rack, X_Hook_Signature=sign(rack)) == 200
    assert rulebook.send(host, X_Hook_Signature=sign(host)) == 200
    rulebook.wait(lambda: len(rulebook.runs()) >= 2)
    rendered = rulebook.top / "rendered"
    assert rulebook.runs() == [
        ["discover.yml", {"discover_hosts": "gpu-a-01"}],
        ["render.yml", {"render_hosts": "gpu-a-01", "render_dir": str(rendered)}],
    ]
    log = rulebook.top / "log"
    rulebook.wait(lambda: "LimitNOFILE=65536" in log.read_text())
    assert (rendered / "gpu-a-01/chat/plan.json").is_file()
    assert "gpu-a-01" in json.loads((rulebook.top / "discovery.json").read_text())["hosts"]
