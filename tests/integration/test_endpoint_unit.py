# SPDX-License-Identifier: GPL-3.0-or-later
"""The module endpoint on a real systemd: units that serve, and units that die in several ways.

    pytest -m lab tests/integration/test_endpoint_unit.py

It needs podman, root and the lab's Debian 12 image; without the image it is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import ansible
import pytest

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "/opt/lib/ansible_collections/baremetal/inference"
KEY = "sk-planted-0123456789"

UNIT = """
[Unit]
AssertPathExists=/etc/vllm/%i.yaml
[Service]
Type=exec
EnvironmentFile=-/etc/vllm/%i.secrets
ExecStart=/usr/bin/python3 /opt/server.py %i
Restart=always
RestartSec=2
"""

# What a person sees in the journal of a vLLM that dies: its banner (with a key that it should not have told), then why.
SERVER = """
import os, sys, time
sys.path.insert(0, "COLLECTION/tests/fakes")
print("(APIServer pid=7) INFO 11-21 08:20:14 [api_utils.py:286] key is", os.environ.get("VLLM_API_KEY"), flush=True)
time.sleep(1)
if sys.argv[1] == "leaves":
    sys.exit(0)
if sys.argv[1] != "serves":
    raise ValueError("the file model.safetensors is short")
import vllm as fake_vllm
fake_vllm.ThreadingHTTPServer.allow_reuse_address = True
server = fake_vllm.ThreadingHTTPServer(("127.0.0.1", 8001), fake_vllm.Handler)
server.fake = type("Fake", (), {"asked": [], "behaviour": {}, "api_key": os.environ.get("VLLM_API_KEY", "")})
server.serve_forever()
""".replace("COLLECTION", COLLECTION)


class Host:
    def __init__(self, name, environment):
        self.name = name
        self.environment = environment

    def sh(self, script, **options):
        command = ["podman", "exec", "-i", "-e", "PYTHONPATH=/opt/lib", self.name, "sh", "-ec", script]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120, check=False, **options
        )

    def copy(self, source, path):
        """Copy a directory of the controller to a directory of the host."""
        assert self.sh(f"mkdir -p {path}").returncode == 0
        subprocess.run(["podman", "cp", f"{source}/.", f"{self.name}:{path}"], env=self.environment, check=True)

    def write(self, path, text, mode="0644"):
        done = self.sh(f"mkdir -p $(dirname {path}); cat > {path}; chmod {mode} {path}", input=text)
        assert done.returncode == 0, done.stderr

    def instance(self, name, port, start=True):
        self.write(
            f"/etc/vllm/{name}.yaml", f"host: 0.0.0.0\nport: {port}\nserved-model-name: baremetal/gpt-oss-smoke\n"
        )
        self.write(f"/etc/vllm/{name}.secrets", f"VLLM_API_KEY={KEY}\n", "0600")
        if start:
            self.sh(f"systemctl start --no-block vllm@{name}")

    def wait(self, name, field, value):
        """Wait until systemd says this of an instance."""
        look = f"systemctl show -P {field} vllm@{name}"
        done = self.sh(f"timeout 60 sh -c 'until {look} | grep -qx {value}; do sleep 0.1; done'")
        assert done.returncode == 0, self.sh(f"systemctl status vllm@{name}").stdout

    def endpoint(self, check=False, **options):
        arguments = {"ready_timeout": 60, "_ansible_check_mode": check, **options}
        module = "python3 -m ansible_collections.baremetal.inference.plugins.modules.endpoint"
        done = self.sh(module, input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
        assert KEY not in done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A lab host with the collection's module, and a unit that stands in for the role's."""
    lab = {**os.environ, "LAB_NAME": "endpoint", "LAB_SUBNET_PREFIX": "10.87.232"}
    subprocess.run([ROOT / "bin/lab", "up", "cpu-12"], env=lab, check=True)
    try:
        home = Path(os.environ.get("LAB_HOME", ROOT / ".lab"))
        host = Host("bminf-endpoint-cpu-12", {**lab, "CONTAINERS_CONF": str(home / "containers.conf")})
        host.copy(Path(ansible.__file__).parent, "/opt/lib/ansible")
        host.copy(ROOT / "plugins", f"{COLLECTION}/plugins")
        host.copy(ROOT / "tests/fakes", f"{COLLECTION}/tests/fakes")
        host.write("/opt/server.py", SERVER)
        host.write("/etc/systemd/system/vllm@.service", UNIT)
        host.sh("systemctl daemon-reload")
        yield host
    finally:
        subprocess.run([ROOT / "bin/lab", "down"], env=lab, check=True)


def test_an_instance_that_serves_is_verified_with_its_own_key(host):
    host.instance("serves", 8001)
    found = host.endpoint(instance="serves", expect="The fleet is ready.")
    assert found["ok"] and not found["changed"], found["msg"]
    assert [row["name"] for row in found["checks"]] == [
        "ready",
        "models",
        "chat",
        "chat_stream",
        "responses",
        "completions",
    ]
    assert (found["url"], found["unit"]) == ("http://127.0.0.1:8001", "vllm@serves.service")
    assert found["ready_after_s"] < 60


def test_an_instance_that_dies_is_reported_at_once_with_the_reason(host):
    host.instance("dies", 8002)
    began = time.monotonic()
    known = [{"symptom": "model.safetensors is short", "advice": "Run the role weights again."}]
    found = host.endpoint(instance="dies", journal_lines=12, known_issues=known)
    assert time.monotonic() - began < 60
    assert not found["ok"] and found["reasons"] == ["ValueError: the file model.safetensors is short"]
    assert "unit vllm@dies.service has failed: exit status 1 (exit-code)" in found["msg"]
    assert "  ValueError: the file model.safetensors is short" in found["msg"].splitlines()
    assert "This is a known problem:\n  Run the role weights again." in found["msg"]
    assert len(found["journal"]) <= 12 and "Main process exited, code=exited, status=1/FAILURE" in "\n".join(
        found["journal"]
    )


def test_a_restart_shows_the_journal_of_the_run_that_died(host):
    """The module's first look meets the second run; what it shows of it is whole."""
    host.instance("again", 8003)
    host.wait("again", "NRestarts", "1")
    found = host.endpoint(instance="again", journal_lines=100)
    assert found["reasons"] == ["ValueError: the file model.safetensors is short"]
    assert "\n".join(found["journal"]).count("Traceback") == 1


def test_the_key_in_the_journal_is_masked(host):
    found = host.endpoint(instance="dies", journal_lines=100)
    assert "key is ********" in "\n".join(found["journal"])


def test_a_server_that_ends_by_itself_has_failed(host):
    host.instance("leaves", 8004)
    found = host.endpoint(instance="leaves")
    assert "unit vllm@leaves.service ended by itself: exit status 0 (success)" in found["msg"]


def test_another_server_on_the_port_does_not_pass(host):
    host.instance("stolen", 8001)
    # The stand-in is active for the second before each failure, unlike the unit of the role; on a busy machine the
    # module may begin in that second.
    for _attempt in range(5):
        host.wait("stolen", "SubState", "auto-restart")
        found = host.endpoint(instance="stolen")
        if "has failed" in found["msg"]:
            break
    assert "unit vllm@stolen.service has failed" in found["msg"]
    assert "; something else answers at http://127.0.0.1:8001" in found["msg"]


def test_a_refused_start_is_told(host):
    host.sh("systemctl start vllm@refused || true")
    found = host.endpoint(unit="vllm@refused.service", model="m", url="http://127.0.0.1:8005")
    assert "unit vllm@refused.service is not started" in found["msg"]
    assert "Starting requested but asserts failed." in "\n".join(found["journal"])


def test_a_unit_that_does_not_exist(host):
    found = host.endpoint(unit="other.service", model="m", url="http://127.0.0.1:8005")
    assert "unit other.service does not exist on this host" in found["msg"]


def test_check_mode_skips_what_does_not_run_and_verifies_what_does(host):
    host.instance("idle", 8006, start=False)
    idle = host.endpoint(check=True, instance="idle")
    assert idle["skipped"] and idle["ok"] is None
    assert (
        idle["msg"] == "Not verified: unit vllm@idle.service does not run: inactive (dead), result success, 0 restarts."
    )
    fresh = host.endpoint(check=True, instance="fresh")
    lacks = "instance fresh is not installed on this host: /etc/vllm/fresh.yaml is not there; "
    assert fresh["msg"].startswith(f"Not verified: {lacks}")
    assert host.endpoint(check=True, instance="serves")["ok"]
