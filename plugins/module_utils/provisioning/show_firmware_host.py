# SPDX-License-Identifier: GPL-3.0-or-later
"""Print what a host shows of its firmware's settings: PCI functions, sockets and NUMA nodes.

provision.yml runs this file on a new host, as the standard input of its Python: it imports nothing of the collection.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys

# Bridges, displays and processing accelerators; hundreds of virtual functions may come with the last two.
CLASSES = ("0x0604", "0x03", "0x12")
MOST_FUNCTIONS = 512
CONFIG_BYTES = 4096


def read_firmware(sysfs: str = "/sys") -> dict[str, object]:
    """Return the functions by address, each with the text of its resources and its configuration in hex, and counts."""
    functions: dict[str, object] = {}
    for path in sorted(glob.glob(os.path.join(sysfs, "bus/pci/devices/*"))):
        if _text(path, "class").startswith(CLASSES) and len(functions) < MOST_FUNCTIONS:
            functions[os.path.basename(path)] = {
                "bridge": _text(path, "class").startswith(CLASSES[0]),
                "resource": _text(path, "resource"),
                "config": _bytes(os.path.join(path, "config")).hex(),
            }
    system = os.path.join(sysfs, "devices/system")
    processors = glob.glob(os.path.join(system, "cpu/cpu*/topology"))
    nodes = glob.glob(os.path.join(system, "node/node*"))
    return {
        "functions": functions,
        "sockets": len({_text(path, "physical_package_id") for path in processors} - {"", "-1"}),
        # Memory alone is a node too, such as that of a chip.
        "nodes": sum(bool(re.search("[0-9]", _text(path, "cpulist"))) for path in nodes),
    }


def _text(path: str, name: str) -> str:
    return _bytes(os.path.join(path, name)).decode("ascii", "replace").strip()


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(CONFIG_BYTES) or b""
    except OSError:
        return b""


if __name__ == "__main__":
    json.dump(read_firmware(), sys.stdout)
