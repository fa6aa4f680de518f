# SPDX-License-Identifier: GPL-3.0-or-later
"""Never the wrong disk: the guard of the ramdisk in the real agent of Ironic, over file systems on loop devices.

Of each disk the test knows a hash before and after. Needs root and two loop devices.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.fakes.ironic_lab import TOP, agent_environment

pytestmark = pytest.mark.long
CACHE = Path(__file__).resolve().parents[2] / ".cache"
SIZE = 16 << 20
SEED = 42
TRIES = 50
MARKS = ("", "gpu-01", "gpu-02")


@pytest.fixture(scope="module")
def agent():
    """Return the agent with the guard, which takes one case a line."""
    words = [str(agent_environment(CACHE) / "bin/python"), str(TOP / "tests/fakes/agent_disks.py")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def disks(tmp_path):
    """Return two loop devices, by what they are for."""
    found = {}
    for name in ("system", "data"):
        file = tmp_path / f"{name}.img"
        file.write_bytes(bytes(SIZE))
        words = ["losetup", "--find", "--show", str(file)]
        found[name] = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    yield found
    for device in found.values():
        subprocess.run(["losetup", "--detach", device], check=True)


def fill(device, mark, directory):
    """Put a file system on a disk, with the mark of a host or without one."""
    tree = directory / "tree"
    (tree / "etc/baremetal-inference").mkdir(parents=True, exist_ok=True)
    file = tree / "etc/baremetal-inference/host"
    file.write_text(f"{mark}\n") if mark else file.unlink(missing_ok=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", str(tree), device], check=True, capture_output=True)


def content(device):
    return hashlib.sha256(Path(device).read_bytes()).hexdigest()


def ask(agent, devices, step, node, swapped=False, **args):
    both = [[devices["system"], "OSDISK0001", SIZE], [devices["data"], "DATA0001", SIZE]]
    case = {"devices": both[::-1] if swapped else both, "step": step, "node": node, "args": args}
    agent.stdin.write(json.dumps(case) + "\n")
    agent.stdin.flush()
    return json.loads(agent.stdout.readline())


def node(released="", serial="OSDISK0001"):
    return {"properties": {"root_device": {"serial": serial}}, "extra": {"order": "o", "released": released}}


def test_in_fifty_tries_no_wrong_disk_is_written_or_wiped(agent, disks, tmp_path):
    """Names in either order, marks of this host, of another or none on both disks, released or not."""
    choose = random.Random(SEED)
    counts = {"written": 0, "wiped": 0, "refused": 0, "wrong": 0}
    for number in range(TRIES):
        marks = {name: choose.choice(MARKS) for name in disks}
        released, swapped, wipes = choose.choice(("", "gpu-01")), choose.random() < 0.5, choose.random() < 0.5
        for name, device in disks.items():
            fill(device, marks[name], tmp_path)
        before = {name: content(device) for name, device in disks.items()}
        if wipes:
            found = ask(agent, disks, "wipe_named_disks", node(released), swapped, disks=["OSDISK0001"])
        else:
            found = ask(agent, disks, "refuse_known_host", node(released), swapped)
        changed = [name for name, device in disks.items() if content(device) != before[name]]
        allowed = marks["system"] in ("", released)
        told = (number, marks, released, swapped, wipes, found)
        counts["refused" if "refused" in found else "wiped" if wipes else "written"] += 1
        counts["wrong"] += changed not in ([], ["system"])
        assert changed == (["system"] if allowed else []), told
        assert allowed or f"holds the host '{marks['system']}', which nobody has released" in found["refused"], told
    print(counts)
    assert counts["wrong"] == 0
    assert min(counts["written"], counts["wiped"], counts["refused"]) >= 5, counts


@pytest.mark.parametrize("step", ["refuse_known_host", "wipe_named_disks"])
def test_a_disk_that_is_not_in_the_server_is_not_replaced_by_another(agent, disks, tmp_path, step):
    for device in disks.values():
        fill(device, "", tmp_path)
    before = [content(device) for device in disks.values()]
    args = {"disks": ["OTHER"]} if step == "wipe_named_disks" else {}
    assert "refused" in ask(agent, disks, step, node(serial="OTHER"), **args)
    assert [content(device) for device in disks.values()] == before


def test_a_disk_that_is_wiped_has_no_file_system_and_both_are_wiped_where_both_are_named(agent, disks, tmp_path):
    for device in disks.values():
        fill(device, "gpu-01", tmp_path)
    assert "done" in ask(agent, disks, "wipe_named_disks", node("gpu-01"), disks=["DATA0001", "eui.OSDISK0001"])
    for device in disks.values():
        found = subprocess.run(["blkid", "-p", device], check=False, capture_output=True, text=True)
        assert found.stdout == ""
