# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys

from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.show_firmware_host import read_firmware
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.host_firmware import (
    PROGRAM,
    read_shown,
)


def test_the_program_runs_alone_and_reads_this_machine():
    with PROGRAM.open("rb") as file:
        done = subprocess.run([sys.executable, "-I", "-"], stdin=file, capture_output=True, check=True)
    found = read_shown(done.stdout)
    assert found["sockets"] >= 1
    assert all(len(config) >= 64 for _bridge, _resource, config in found["functions"].values())


def test_a_host_is_read_from_sysfs(tmp_path):
    classes = {"0000:3b:00.0": "0x030200", "0000:0b:00.0": "0x060400", "0000:01:00.0": "0x010802"}
    for address, pci_class in classes.items():
        path = tmp_path / "bus/pci/devices" / address
        path.mkdir(parents=True)
        for name, text in (("class", pci_class), ("resource", "0x1 0x2 0x3"), ("config", "ab")):
            (path / name).write_text(f"{text}\n")
    for processor, socket in enumerate((0, 0, 1, 1)):
        path = tmp_path / f"devices/system/cpu/cpu{processor}/topology"
        path.mkdir(parents=True)
        (path / "physical_package_id").write_text(f"{socket}\n")
    for node, processors in enumerate(("0-1", "2-3", "")):
        path = tmp_path / f"devices/system/node/node{node}"
        path.mkdir(parents=True)
        (path / "cpulist").write_text(f"{processors}\n")
    found = read_firmware(str(tmp_path))
    assert (found["sockets"], found["nodes"]) == (2, 2)
    assert {address: each["bridge"] for address, each in found["functions"].items()} == {
        "0000:0b:00.0": True,
        "0000:3b:00.0": False,
    }
    assert found["functions"]["0000:3b:00.0"]["config"] == "61620a"
