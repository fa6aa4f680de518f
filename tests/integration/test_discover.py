# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/discover.yml over SSH: hosts that lose their Python, a card, their power; its own lab."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.cache import read_discovery

from tests.fakes.sysfs import ASPEED, lines, write_sysfs

TOP = Path(__file__).resolve().parents[2]
NAME, PREFIX = "disc", "10.87.241"
HOME = Path(os.environ.get("LAB_HOME", TOP / ".lab")).resolve()
ENVIRONMENT = {**os.environ, "LAB_NAME": NAME, "LAB_SUBNET_PREFIX": PREFIX, "ANSIBLE_NOCOLOR": "1"}
NVSWITCHES = lines("10de:22a3", 4, first=0x80, pci_class="0680")

pytestmark = [
    # Its lab takes a minute and a half to come up, and it seldom fails.
    pytest.mark.long,
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]


def lab(*words, data=None):
    done = subprocess.run(
        [sys.executable, TOP / "tools/lab/__main__.py", *words],
        env=ENVIRONMENT,
        input=data,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode().strip()


def cut_power(host):
    """Stop a host, with the configuration of the lab: with another, podman may never release the address."""
    podman = {**ENVIRONMENT, "CONTAINERS_CONF": str(HOME / "containers.conf")}
    command = ["podman", "stop", "--time", "60", f"bminf-{NAME}-{host}"]
    subprocess.run(command, env=podman, check=True, capture_output=True)


def plug(host, functions, root):
    """Give a host this PCI tree, in place of the one that it had."""
    write_sysfs(root / "tree", functions, nodes=2)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(root / "tree", "tree")
    lab("ssh", host, "rm -rf /root/tree && tar -x -C /root", data=buffer.getvalue())


@pytest.fixture(scope="module")
def hosts():
    lab("up", "mirror", "cpu-12")
    yield
    lab("down")


class Discovery:
    """Runs the playbook over the lab's hosts with its own cache."""

    def __init__(self, top):
        self.cache = top / "cache.json"
        self.variables = top / "variables.json"
        roots = {"accelerator_sysfs_root": "/root/tree"}
        self.variables.write_text(json.dumps({"all": {"hosts": {"mirror": roots, "cpu-12": roots}}}))

    def __call__(self, *words):
        """Return the output as one line, and the number of changes."""
        command = [Path(sys.executable).with_name("ansible-playbook"), "playbooks/discover.yml"]
        command += ["-i", "inventories/lab", "-i", self.variables, "-e", f"discover_cache={self.cache}"]
        command += ["-e", "target_hosts=mirror:cpu-12", *words]
        done = subprocess.run(
            command, cwd=TOP, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=180
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return " ".join(output.split()), sum(int(number) for number in re.findall(r"changed=(\d+)", output))

    def kept(self):
        return read_discovery(str(self.cache))


def test_a_fleet_is_discovered_again_and_again(hosts, tmp_path):
    discover = Discovery(tmp_path)
    plug("cpu-12", [*lines("10de:2335", 8), *NVSWITCHES, ASPEED], tmp_path / "first")
    plug("mirror", [ASPEED], tmp_path / "plain")
    # One host has no Python, the other greets whoever logs in.
    lab("ssh", "mirror", "mkdir /root/away && mv /usr/bin/python3* /root/away && ! command -v python3")
    lab("ssh", "cpu-12", "echo 'echo Welcome; echo accelerator-probe 1 begin' > /root/.bashrc")

    output, changed = discover()
    assert "2 of 2 hosts answered" in output, output
    assert "Accelerators of 2 hosts: h200 x 8 (1); cpu (1)" in output
    assert changed == 1
    first = discover.kept()

    output, changed = discover()
    assert "Nothing is different from before." in output
    assert changed == 0

    plug("cpu-12", [*lines("10de:2335", 7), *NVSWITCHES, ASPEED], tmp_path / "second")
    lab("ssh", "cpu-12", "mkdir -p /root/tree/module/nvidia && echo 580.159.04 > /root/tree/module/nvidia/version")
    cut_power("mirror")
    output, changed = discover()
    assert "1 of 2 hosts answered" in output, output
    assert "cpu-12: h200 x 8 -> h200 x 7, driver none -> 580.159.04" in output
    assert "mirror: no longer answers" in output
    assert re.search(r"mirror: cpu, \d+ (seconds|minutes) old \(20\S+Z\): ssh: connect to host", output), output
    assert changed == 1
    stale = discover.kept()["mirror"]
    assert stale.observation == first["mirror"].observation
    assert stale.stale_since > stale.at >= first["mirror"].at

    lab("up", "mirror")
    output, changed = discover()
    assert "2 of 2 hosts answered" in output, output
    assert "mirror: answers again, as before" in output
    assert discover.kept()["mirror"].stale_since is None


def test_the_kept_answer_is_the_hosts_own(hosts, tmp_path):
    """What accelerator_info says with Python on the host is what the probe said without."""
    discover = Discovery(tmp_path)
    plug("cpu-12", [*lines("1002:74a1", 8, pci_class="1200"), ASPEED], tmp_path / "third")
    discover("-l", "cpu-12")
    command = [Path(sys.executable).with_name("ansible"), "-i", "inventories/lab", "cpu-12", "-o"]
    command += ["-m", "baremetal.inference.accelerator_info", "-a", "sysfs_root=/root/tree"]
    done = subprocess.run(command, cwd=TOP, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])["accelerator"]
    kept = discover.kept()["cpu-12"].observation
    assert kept["cpu"] == found["cpu"]
    assert [text.split()[0] for text in kept["functions"]] == [device["address"] for device in found["devices"]]
