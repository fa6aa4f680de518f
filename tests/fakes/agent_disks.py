# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard in the real agent of the ramdisk (ironic-python-agent), over loop devices as the disks of a server.

A program of the agent's environment: one case a line of its input, one result a line of its output. A case has
``devices`` (device and serial number, in the order in which the kernel shows them), ``step``, ``args`` and ``node``.
The step is called as the agent calls it. After a refused step nothing is written; after an allowed "refuse_known_host"
the disk that the agent chose is written, as write_image would.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "roles/provisioner/files"), str(TOP.parent)]


# The collection lies in a folder of another name, and this environment has no Ansible.
for name in ("ansible_collections", "ansible_collections.baremetal", "ansible_collections.baremetal.inference"):
    package = types.ModuleType(name)
    package.__path__ = [str(TOP)] if name.endswith("inference") else []
    sys.modules[name] = package

# The agent's other modules need the options of this one.
importlib.import_module("ironic_python_agent.config")
from ironic_python_agent import disk_utils, hardware  # isort: skip
import baremetal_guard  # isort: skip


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run the step of a case; return its result or its refusal."""
    devices = [
        hardware.BlockDevice(name, "Loop", size, rotational=False, serial=serial, vendor="", wwn=f"eui.{serial}")
        for name, serial, size in case["devices"]
    ]
    # The agent lists no loop devices; everything after this list is its own.
    hardware.list_all_block_devices = lambda block_type="disk", **_more: list(devices) if block_type == "disk" else []
    node = {
        "uuid": "38947555-7742-3448-3784-823347823834",
        "driver_internal_info": {},
        "instance_info": {},
        **case["node"],
    }
    hardware.NODE = node
    try:
        result = hardware.dispatch_to_managers(case["step"], node, [], **case["args"])
    except Exception as exc:
        return {"refused": str(exc)}
    if case["step"] == "refuse_known_host":
        chosen = hardware.dispatch_to_managers("get_os_install_device", permit_refresh=True)
        with Path(chosen).open("r+b") as disk:
            disk.write(b"NEW SYSTEM" + bytes(1 << 20))
    return {"done": result}


def main() -> None:
    hardware.GenericHardwareManager.initialize = lambda _self: None
    managers = [baremetal_guard.BaremetalGuard(), hardware.GenericHardwareManager()]
    hardware.get_managers = lambda: managers
    disk_utils.wait_for_disk_to_become_available = lambda *_words: None
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
