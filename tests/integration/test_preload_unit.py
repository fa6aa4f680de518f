# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights that stay on the chips, under a real systemd: the units and the program of the role, as confined as there.

    pytest -m lab tests/integration/test_preload_unit.py

It needs podman and root. A server of Python replaces vLLM, and a script `vllm preload`, so no chip is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_residents_unit import RENDER, ROOT, VARIABLES, WRITE, Host

pytestmark = [pytest.mark.long, pytest.mark.lab]

UNIT, SERVICE = "vllm@a.service", "vllm-preload@a.service"
DIRECTORIES = [f"/run/vllm-preload/{digit * 24}" for digit in "ab"]
ENGINE = """
import http.server, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("sockets", sorted(map(str, pathlib.Path("/run/vllm-preload").glob("*/*.sock"))), flush=True)
http.server.HTTPServer(("127.0.0.1", 8001), Handler).serve_forever()
"""
# vllm preload --config FILE --weight-cache-socket-dir DIRECTORY. A stopped one exits with -15 of its processes.
PRELOAD = """#!/bin/sh
trap 'rm -f "$5"/*.sock; exit 241' TERM
[ ! -e /var/lib/vllm/a/fails ] || exit 3
# As FlashInfer does when it is imported.
echo imported >> "$HOME/flashinfer_jit.log" || exit 4
sleep 2
mkdir -p -m 0700 "$5"; touch "$5/vllm_weight_cache_0.sock"
while :; do sleep 0.2; done
"""


def plan(directory):
    loader = {"load-format": "ipc_cache", "model-loader-extra-config": json.dumps({"socket_dir": directory})}
    return {
        "instance": "a", "replica_of": "a", "runtime": "venv", "stack": "cpu", "secrets": [], "venv": {},
        "preload": True, "container": None,
        "env": {"HOME": "/var/cache/vllm/a", "PATH": "/opt/stub:/usr/bin:/bin"}, "middleware": [],
        "config": {"host": "127.0.0.1", "port": 8001, "model": "/m", **loader},
        "launch": ["/usr/bin/python3", "/opt/engine.py"],
    }  # fmt: skip


class PreloadHost(Host):
    def write(self, directory):
        """Write the files of an instance with these weights, as the role does."""
        render = RENDER.replace('"vllm-residents", "availability"', '"vllm-preload"')
        command = [sys.executable, "-c", render, str(ROOT / ".collections"), str(ROOT / "roles/vllm/files")]
        given = json.dumps([[plan(directory)], {**VARIABLES, "vllm_secrets": {}}])
        done = subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True)
        self.sh(f"python3 -c '{WRITE}'", input=done.stdout)
        self.sh("systemctl daemon-reload")

    def install(self):
        self.sh("useradd --system --home-dir /var/lib/vllm --shell /usr/sbin/nologin vllm")
        self.write(DIRECTORIES[0])
        for path, text in (("/opt/engine.py", ENGINE), ("/opt/stub/vllm", PRELOAD)):
            self.sh(f"mkdir -p /opt/stub; cat > {path}; chmod 755 {path}", input=text)
        self.sh("mkdir /var/lib/vllm/a/model; echo '{}' > /var/lib/vllm/a/model/config.json")

    def journal(self, *units):
        return super().journal(*units or (UNIT, SERVICE))

    def pid(self):
        return self.show(SERVICE, "MainPID")

    def sockets(self):
        """Return the directories in which the last engine has found sockets."""
        lines = [line for line in self.journal(UNIT).splitlines() if " sockets [" in line]
        return [path for path in DIRECTORIES if path in lines[-1]]


@pytest.fixture(scope="module")
def host():
    lab = {**os.environ, "LAB_NAME": "preload", "LAB_SUBNET_PREFIX": "10.87.235"}
    subprocess.run([ROOT / "bin/lab", "up", "cpu-12"], env=lab, check=True)
    try:
        home = Path(os.environ.get("LAB_HOME", ROOT / ".lab"))
        host = PreloadHost("bminf-preload-cpu-12", {**lab, "CONTAINERS_CONF": str(home / "containers.conf")})
        host.install()
        host.sh("systemctl start vllm@a")
        yield host
    finally:
        subprocess.run([ROOT / "bin/lab", "down"], env=lab, check=True)


def test_a_start_waits_for_the_weights(host):
    assert (host.show(UNIT, "ActiveState"), host.show(SERVICE, "ActiveState")) == ("active", "active")
    assert host.sockets() == DIRECTORIES[:1] and "The weights are on the chips after" in host.journal(UNIT)
    assert host.sh(f"stat -c '%a %U' {DIRECTORIES[0]} /run/vllm-preload").split() == ["700", "vllm", "700", "vllm"]


def test_the_weights_stay_while_the_instance_restarts(host):
    before = host.pid()
    host.sh("systemctl restart vllm@a")
    host.sh("systemctl stop vllm@a; sleep 3; systemctl start vllm@a")
    assert host.pid() == before != "0" and host.show(UNIT, "ActiveState") == "active"


def test_other_weights_are_loaded_before_the_engine_that_wants_them(host):
    before = host.pid()
    host.write(DIRECTORIES[1])
    host.sh("systemctl restart vllm@a")
    assert host.sockets() == DIRECTORIES[1:] and host.pid() not in ("0", before)


def test_weights_that_fail_leave_the_engine_to_itself(host):
    host.sh("systemctl stop vllm@a vllm-preload@a; touch /var/lib/vllm/a/fails; systemctl start vllm@a")
    assert (host.show(UNIT, "ActiveState"), host.show(SERVICE, "ActiveState")) == ("active", "failed")
    assert host.sockets() == [] and "so vLLM reads the weights itself" in host.journal(UNIT)
    host.sh("rm /var/lib/vllm/a/fails; systemctl restart vllm@a")
    assert host.show(SERVICE, "ActiveState") == "active"


def test_an_instance_that_is_removed_takes_its_weights_along(host):
    host.sh("systemctl stop vllm@a; rm /etc/vllm/a.yaml; sleep 6")
    assert host.show(SERVICE, "ActiveState") == "inactive" and host.show(SERVICE, "Result") == "success"
