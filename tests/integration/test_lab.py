# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab itself: from nothing, through kills, to nothing. Its name, subnet, home and cache are its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NAME, PREFIX = "itest", "10.87.231"

# Every scenario uses the lab; what may happen to it takes five minutes.
pytestmark = [
    pytest.mark.lab,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]


class LabTool:
    """The lab's command, for a lab in its own directory."""

    def __init__(self, home):
        self.home = home
        self.environment = {**os.environ, "LAB_NAME": NAME, "LAB_SUBNET_PREFIX": PREFIX, "LAB_HOME": str(home)}
        for name in ("LAB_CACHE", "LAB_FILLED"):
            self.environment.pop(name, None)

    def start(self, *words, **settings):
        return subprocess.Popen(
            [sys.executable, TOP / "tools/lab/__main__.py", *words],
            env={**self.environment, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *words, **settings):
        process = self.start(*words, **settings)
        output = process.communicate(timeout=400)[0]
        assert process.returncode == 0, output
        return output

    def fails(self, *words, **settings):
        process = self.start(*words, **settings)
        output = process.communicate(timeout=200)[0]
        assert process.returncode == 1, output
        return output

    def kill_at(self, moment, after, *words):
        """Start a command and kill -9 it some seconds after a line with `moment` was printed."""
        process = self.start(*words)
        for line in process.stdout:
            if moment in line:
                break
        else:
            raise AssertionError(f"{words} ended without saying {moment!r}")
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def on(self, host, command):
        return self("ssh", host, command).strip()


def podman(*words):
    return subprocess.run(["podman", *words], check=True, capture_output=True, text=True).stdout


def traces(home):
    """Return everything of the test's lab that can be seen on the controller; other labs come and go meanwhile."""
    images = podman("images", "--all", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}").split("\n")
    # A lab has a repository of images of its own: another lab that builds one more of its own is no trace of this one.
    found = sorted({f"image {line.partition(':')[0] if 'localhost/bminf-' in line else line}" for line in images})
    mine = {
        "containers": podman("ps", "--all", "--format", "{{.Names}}"),
        "networks": podman("network", "ls", "--quiet"),
    }
    found += [f"{kind} {line}" for kind, lines in mine.items() for line in lines.split() if f"bminf-{NAME}" in line]
    found += [f"volume {line}" for line in podman("volume", "ls", "--quiet", "--filter", "dangling=true").split()]
    found += [str(path) for path in (home, Path("/run") / f"bminf-{NAME}") if path.exists()]
    for command in (["iptables-save"], ["ip", "-4", "route"], ["mount"], ["ps", "-eo", "args"]):
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        found += [line for line in lines if f"{PREFIX}." in line or f"bminf-{NAME}" in line or str(home) in line]
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("lab") / "home"


@pytest.fixture(scope="module")
def before(home):
    return traces(home)


@pytest.fixture(scope="module")
def lab(home, before):
    tool = LabTool(home)
    yield tool
    if home.exists():
        tool("down", "--all")


def test_up_starts_again_after_a_kill_in_every_phase(lab, home):
    up = ("up", "mirror", "cpu-12")
    lab.kill_at("network", 0, *up)
    lab.kill_at("downloading", 0.5, *up)
    lab.kill_at("installing remaining", 3, *up)
    assert not list((home / "cache").glob("*.tar")), "half an image counts as one"
    lab.kill_at("importing", 0.5, *up)
    for delay in (0.3, 0.5, 0.7, 0.9, 1.2):
        kill_while_hosts_are_made(lab, delay)
    output = lab(*up)
    assert f"mirror: up at {PREFIX}.10" in output
    assert f"cpu-12: up at {PREFIX}.12" in output
    assert "building" not in output
    assert lab.on("cpu-12", "systemctl is-system-running") == "running"


def kill_while_hosts_are_made(lab, delay):
    podman("rm", "--force", "--time", "0", "--ignore", *(f"bminf-{NAME}-{host}" for host in ("mirror", "cpu-12")))
    process = lab.start("up", "mirror", "cpu-12")
    time.sleep(delay)
    process.kill()
    process.communicate()


def test_up_changes_nothing_when_all_is_up(lab):
    lab("up", "mirror", "cpu-12")
    made = podman("inspect", f"bminf-{NAME}-cpu-12", "--format", "{{.Id}} {{.State.StartedAt}}")
    output = lab("up", "mirror", "cpu-12")
    assert "starting" not in output
    assert podman("inspect", f"bminf-{NAME}-cpu-12", "--format", "{{.Id}} {{.State.StartedAt}}") == made


def test_two_runs_at_once_take_turns(lab):
    first, second = lab.start("up", "mirror", "cpu-12"), lab.start("up", "mirror", "cpu-12")
    outputs = [process.communicate(timeout=200)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs


def test_host_lets_in_its_key_only_and_shows_its_own(lab, home):
    options = ["-F", "none", "-o", "ConnectTimeout=10", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
    target = f"root@{PREFIX}.12"

    def ssh(*more):
        return subprocess.run(["ssh", *options, *more, target, "hostname"], check=False, capture_output=True, text=True)

    keys = home / NAME / "ssh"
    known, key = f"UserKnownHostsFile={keys}/known_hosts", str(keys / "id_ed25519")
    assert ssh("-o", known, "-i", key).stdout == "cpu-12\n"
    assert "Host key verification failed" in ssh("-o", "UserKnownHostsFile=/dev/null", "-i", key).stderr
    refused = ssh("-o", known, "-o", "IdentityFile=none", "-o", "IdentityAgent=none").stderr
    assert "Permission denied (publickey)" in refused, "it offers more than keys"


def test_keys_are_of_this_lab_and_host(lab):
    keys = {host: lab.on(host, "cat /etc/ssh/ssh_host_*_key.pub") for host in ("mirror", "cpu-12")}
    assert keys["mirror"].endswith(" mirror")
    assert keys["cpu-12"].endswith(" cpu-12")
    identities = {lab.on(host, "cat /etc/machine-id") for host in ("mirror", "cpu-12")}
    assert len(identities) == 2


def test_hosts_find_each_other_by_name(lab):
    assert lab.on("cpu-12", "getent ahostsv4 mirror").split()[0] == f"{PREFIX}.10"
    assert lab.on("mirror", "getent ahostsv4 cpu-12").split()[0] == f"{PREFIX}.12"


def test_mirror_alone_has_the_carried_disk(lab, home):
    (home / "mirror" / "carried").write_text("wheels\n")
    assert lab.on("mirror", "cat /srv/mirror/carried && touch /srv/mirror/back") == "wheels"
    assert (home / "mirror" / "back").exists()
    assert lab.on("cpu-12", "ls /srv") == ""


def test_ansible_reaches_the_same_hosts(lab, home):
    command = [
        Path(sys.executable).with_name("ansible"),
        "-o",
        "-m",
        "ansible.builtin.raw",
        "-a",
        "hostname",
        "mirror:cpu-12",
    ]
    for source in (TOP / "inventories/lab", home / NAME / "inventory.json"):
        result = subprocess.run(
            [*command, "-i", source], check=False, cwd=TOP, env=lab.environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "cpu-12 | CHANGED" in result.stdout


def test_restart_is_a_new_boot_of_the_same_host(lab):
    lab.on("cpu-12", "touch /root/kept /run/gone /tmp/gone")
    key = lab.on("cpu-12", "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id")
    boot = lab.on("cpu-12", "systemctl show --property UserspaceTimestamp")
    time.sleep(1)
    assert f"cpu-12: up at {PREFIX}.12" in lab("restart", "cpu-12")
    assert lab.on("cpu-12", "ls /root/kept; ls /run/gone /tmp/gone 2>/dev/null || true") == "/root/kept"
    assert lab.on("cpu-12", "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id") == key
    assert lab.on("cpu-12", "systemctl show --property UserspaceTimestamp") != boot
    assert lab.on("cpu-12", "getent ahostsv4 mirror").split()[0] == f"{PREFIX}.10"


def test_stopped_host_is_started_with_its_files(lab):
    lab.on("cpu-12", "touch /root/kept")
    podman("stop", "--time", "30", f"bminf-{NAME}-cpu-12")
    assert "cpu-12: starting" in lab("up", "cpu-12")
    assert lab.on("cpu-12", "ls /root/kept") == "/root/kept"


def test_failed_unit_of_a_host_in_use_is_told_and_stops_nobody(lab):
    lab.on("cpu-12", "systemd-run --unit broken false; sleep 0.5")
    assert "cpu-12: up at" in (output := lab("up", "cpu-12"))
    assert "with failed units: broken.service" in output
    lab.on("cpu-12", "systemctl reset-failed")


SANDBOX = """
DynamicUser=yes ProtectSystem=strict PrivateTmp=yes PrivateDevices=yes PrivateIPC=yes RestrictNamespaces=yes
ProtectProc=invisible ProtectKernelTunables=yes ProtectControlGroups=yes MemoryDenyWriteExecute=yes
CapabilityBoundingSet= SystemCallFilter=@system-service LoadCredential=key:/etc/hostname StateDirectory=sandbox
"""


@pytest.mark.parametrize("host", ["cpu-12", "cpu-13"])
def test_units_can_be_hardened_as_on_a_server(lab, host):
    lab("up", host)
    assert lab.on(host, "systemctl is-system-running") == "running"
    properties = " ".join(f"--property {word}" for word in SANDBOX.split())
    # systemd needs shared mounts for credentials, which a container manager has to prepare.
    command = f"systemd-run --quiet --wait --pipe {properties} cat '${{CREDENTIALS_DIRECTORY}}/key'"
    assert lab.on(host, command) == host


@pytest.mark.parametrize("host", ["cpu-12", "cpu-13"])
def test_host_has_no_way_into_the_kernel_of_the_controller(lab, host):
    bounding = int(lab.on(host, "sed -n 's/^CapBnd:\t//p' /proc/1/status"), 16)
    module, rawio, clock = 16, 17, 25
    assert [bit for bit in (module, rawio, clock) if bounding >> bit & 1] == []
    assert lab.on(host, "test -e /dev/kmsg || echo none") == "none"
    assert lab.on(host, "systemctl is-active systemd-sysctl systemd-udev-trigger; true").split() == ["inactive"] * 2


# Modules are compiled there for the next call of root, who runs what lies there.
def test_no_user_of_a_host_writes_what_root_runs(lab):
    assert lab.on("cpu-12", "find /run -xdev -type d -perm -002") == "/run/lock"
    as_nobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
    for place in ("/run/lab-compiled", "/run/lab-compiled/cpython-311"):
        lab.on("cpu-12", f"test -d {place}")
        assert "Permission denied" in lab.fails("ssh", "cpu-12", f"{as_nobody} touch {place}/code")


def test_host_holds_nothing_that_a_role_installs(lab):
    installed = lab.on(
        "cpu-12", "dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p'"
    ).split()
    assert "openssh-server" in installed
    assert not {"nginx", "python3-venv", "docker.io", "podman"} & set(installed)


def test_taken_subnet_is_told_with_the_way_out(lab):
    output = lab.fails("up", "cpu-12", LAB_NAME="itest-b")
    assert f"The subnet {PREFIX}.0/24 is already used here" in output
    assert "Set LAB_SUBNET_PREFIX" in output
    assert not Path("/run/bminf-itest-b/ssh").exists()
    lab("down", LAB_NAME="itest-b")


def test_lab_of_another_checkout_is_left_alone(lab, home, tmp_path):
    for command in ("up", "down"):
        output = lab.fails(command, LAB_HOME=str(tmp_path))
        assert f"Lab {NAME} already exists and belongs to {home}" in output
    assert lab.on("cpu-12", "hostname") == "cpu-12"


def test_other_subnet_for_a_lab_that_is_up_is_refused(lab):
    output = lab.fails("up", LAB_SUBNET_PREFIX="10.87.230")
    assert f"Lab {NAME} runs on {PREFIX}.0/24, not 10.87.230.0/24" in output


def test_without_root_the_command_to_run_is_printed(lab):
    program = (
        "import os\nfrom tools.lab.podman import *\nos.geteuid = lambda: 1000\n"
        "try: require_controller(['up', 'cpu-12'])\nexcept LabError as exc: print(exc)"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, check=False, cwd=TOP, env=lab.environment, capture_output=True, text=True).stdout
    assert output.startswith("The lab needs root. Run: sudo LAB_HOME=")
    assert output.endswith(f"LAB_NAME={NAME} LAB_SUBNET_PREFIX={PREFIX} bin/lab up cpu-12\n")


def test_status_shows_every_host(lab):
    lines = dict(line.split(None, 1) for line in lab("status").splitlines()[1:])
    assert lines["cpu-12"].split() == [f"{PREFIX}.12", "bookworm", "running"]


def test_inventory_file_is_plain_for_other_tools(lab, home):
    listed = json.loads((home / NAME / "inventory.json").read_text())
    assert listed["lab"]["hosts"]["cpu-12"] == {"ansible_host": f"{PREFIX}.12"}


def test_down_keeps_downloads_and_images(lab, home):
    lab("down")
    assert {path.name for path in home.iterdir()} == {"cache", "containers.conf", "mirror"}
    left = [line for line in traces(home) if not line.startswith(("image", "volume")) and line != str(home)]
    assert left == []
    assert "removed" in lab("down"), "a lab that does not exist is not an error"
    for command in ("ssh", "restart"):
        assert f"Lab {NAME} has no host cpu-12 yet. Run: bin/lab up cpu-12" in lab.fails(command, "cpu-12")


def test_down_after_a_kill_of_down(lab):
    for delay in (0.2, 0.4, 0.6):
        lab("up", "cpu-12")
        process = lab.start("down")
        time.sleep(delay)
        process.kill()
        process.communicate()
    lab("down")
    assert f"bminf-{NAME}" not in podman("ps", "--all", "--format", "{{.Names}}") + podman("network", "ls", "--quiet")


def test_down_all_leaves_no_trace(lab, home, before):
    lab("up", "cpu-12")
    lab("down", "--all")
    assert sorted(traces(home)) == sorted(before)
