# SPDX-License-Identifier: GPL-3.0-or-later
"""From a server that is switched off to SSH in one piece: fake BMC, QEMU without KVM, real Ironic, ramdisk and image.

Nothing is stood in for but the BMC. It prints the seconds of each phase, and takes 5 to 15 minutes on two quiet
processors, and as long before that to make ramdisk and image once. Needs root, QEMU, OVMF and mmdebstrap.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.fakes.ironic_lab import ROLE, TOP, IronicLab, ironic_environment

CACHE = TOP / ".cache"
LIBRARY = TOP / "plugins/module_utils/provisioning"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
BRIDGE, TAP = "bmi-power", "bmi-power0"
ADDRESS, HOST = "10.88.42.1", "10.88.42.11"
# Ten times what a quiet machine needs; only a hang takes longer.
DEADLINES = dict.fromkeys(("enroll", "order", "ramdisk", "write", "boot", "power_off", "wipe"), 3000)


@pytest.fixture(scope="session")
def images():
    """Return the directory of the ramdisk and the image that the role's own program makes."""
    here, out = CACHE / "provision-build", CACHE / "provision-images"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    names = ("build.sh", "agent.txt", "agent-network.py", "baremetal_guard.py")
    library = ("disk_marks_host.py", "named_disks.py", "wipe_host.py", "agent_network_host.py")
    for file in (*(ROLE / "files" / name for name in names), *(LIBRARY / name for name in library)):
        shutil.copy(file, here)
    packages = {"MIRROR": "http://deb.debian.org/debian", "COMPONENTS": "main", "PACKAGES": "", "UBUNTU_MIRROR": UBUNTU}
    more = {"INDEX": os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple/"), "PYTHON": shutil.which("python3")}
    words = ["bash", str(here / "build.sh"), str(CACHE / "provision-work"), str(out)]
    subprocess.run(words, check=True, env={**os.environ, **packages, **more, "HERE": str(here)})
    return out


@pytest.fixture
def network():
    """Give QEMU a network of its own with this machine."""
    for words in (
        ["link", "add", BRIDGE, "type", "bridge"], ["address", "add", f"{ADDRESS}/24", "dev", BRIDGE],
        ["link", "set", BRIDGE, "up"], ["tuntap", "add", TAP, "mode", "tap"],
        ["link", "set", TAP, "master", BRIDGE, "up"],
    ):  # fmt: skip
        subprocess.run(["ip", *words], check=True)
    yield
    for device in (TAP, BRIDGE):
        subprocess.run(["ip", "link", "delete", device], check=True)


@pytest.fixture
def lab(tmp_path, images, network, image):
    """Return a lab with one server."""
    login = tmp_path / "login"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(login)], check=True)
    guest = tmp_path / "guest"
    guest.mkdir()
    server = {
        "address": "127.20.42.1", "mac": "52:54:00:00:42:01", "serial": "SRV0042", "image": image,
        "disks": ["OSDISK0042", "DATA0042"], "guest": {"directory": str(guest), "tap": TAP, "address": f"{HOST}/24"},
    }  # fmt: skip
    with IronicLab(
        tmp_path, ironic_environment(CACHE), [server], port=26600, address=ADDRESS, images=images, login=login
    ) as made:
        yield made


def ssh(lab, command):
    words = ["ssh", "-i", str(lab.login), "-o", f"UserKnownHostsFile={lab.directory / 'known_hosts'}", f"root@{HOST}"]
    return subprocess.run([*words, command], check=True, capture_output=True, text=True, timeout=300).stdout


def play(lab, *words, playbook="provision.yml"):
    process = lab.play("-e", json.dumps({"provision_deadlines": DEADLINES}), *words, playbook=playbook)
    output, _errors = process.communicate(timeout=4 * 3600)
    print(output)
    assert process.returncode == 0, output
    return output


def has_data(lab, disk):
    words = ["qemu-img", "map", "--force-share", "--output=json", str(lab.directory / f"guest/{disk}.qcow2")]
    return any(each["data"] for each in json.loads(subprocess.run(words, check=True, capture_output=True).stdout))


@pytest.mark.parametrize("image", ["debian13", "ubuntu2404"])
def test_a_server_that_is_switched_off_answers_ssh(lab, images, image):
    play(lab)
    assert ssh(lab, "cat /etc/baremetal-inference/host /etc/baremetal-inference/image").split() == [
        "gpu-01",
        json.loads((images / "images.json").read_text())["images"][image]["build_id"],
    ]
    assert [has_data(lab, disk) for disk in ("OSDISK0042", "DATA0042")] == [True, False]
    assert "changed=0" in play(lab)
