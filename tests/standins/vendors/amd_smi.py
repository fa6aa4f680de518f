# SPDX-License-Identifier: GPL-3.0-or-later
"""What amd-smi and rocm-smi say of a machine: documents as public fixtures have them, errors as they were recorded."""

from __future__ import annotations

import json
from typing import Any, Sequence

from tests.standins.place import Answer, Place

# Recorded with Debian 13's own tools on a host that has no driver: rocm-smi ends with 0 and says nothing on stdout.
NO_DRIVER = (
    "ERROR: Unable to get devices, driver not initialized (amdgpu not found in modules)\n"
    "ERROR: Unable to detect any GPU devices, check amdgpu version and module status\n"
)
ROCM_SMI_NO_DRIVER = (
    "cat: /sys/module/amdgpu/initstate: No such file or directory\n"
    "ERROR:root:Driver not initialized (amdgpu not found in modules)\n"
)
NODES = "class/kfd/kfd/topology/nodes"


def chips_of(place: Place) -> list[str]:
    """Return the addresses of AMD's chips in the PCI tree that the machine is sold with."""
    ids = place.machine().chip.get("ids", ())
    found = []
    for path in sorted((place.sys / "bus/pci/devices").glob("*")):
        vendor, device = ((path / name).read_text().strip() for name in ("vendor", "device"))
        if f"{vendor[2:]}:{device[2:]}" in ids:
            found.append(path.name)
    return found


def taken(place: Place) -> list[str]:
    """Return the addresses of the chips that the driver has made devices of."""
    found = []
    for path in sorted((place.sys / NODES).glob("*/properties")):
        values = dict(line.split() for line in path.read_text().splitlines() if line)
        if values.get("simd_count") != "0":
            location = int(values["location_id"])
            found.append(f"{int(values['domain']):04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}")
    return found


def amd_smi(argv: Sequence[str], place: Place) -> Answer:
    """Return what amd-smi says; with the fault ``older-shape`` as it did before ROCm 7."""
    if not (place.sys / "module/amdgpu").is_dir():
        return Answer(255, err=NO_DRIVER)
    make = _metric if argv[:1] == ["metric"] else _gpu
    gpus = [make(number, address, place) for number, address in enumerate(taken(place))]
    document = gpus if place.fault("older-shape") is not None else {"gpu_data": gpus}
    if "--json" in argv:
        return Answer(out=json.dumps(document, indent=4) + "\n")
    return Answer(out="".join(f"GPU: {gpu['gpu']}\n    BDF: {gpu['bus']['bdf']}\n" for gpu in gpus))


def rocm_smi(argv: Sequence[str], place: Place) -> Answer:
    """Return what rocm-smi says."""
    if not (place.sys / "module/amdgpu").is_dir():
        return Answer(0, err=ROCM_SMI_NO_DRIVER)
    about = place.machine().chip
    cards: dict[str, Any] = {
        f"card{number}": {"Card Series": about["name"], "GFX Version": about["gfx"], "PCI Bus": address.upper()}
        for number, address in enumerate(taken(place))
    }
    cards["system"] = {"Driver version": _version(place)}
    return Answer(out=json.dumps(cards) + "\n" if "--json" in argv else f"{len(cards) - 1} cards\n")


def _gpu(number: int, address: str, place: Place) -> dict[str, Any]:
    about = place.machine().chip
    return {
        "gpu": number,
        "asic": {
            "market_name": about["name"],
            "vendor_id": "0x1002",
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "device_id": f"0x{about['ids'][0].partition(':')[2]}",
            "num_compute_units": about["compute_units"],
            "target_graphics_version": about["gfx"],
        },
        "bus": {"bdf": address.upper()},
        "vram": {"type": "HBM", "size": {"value": about["memory_mib"], "unit": "MB"}},
        "driver": {"name": "amdgpu", "version": _version(place) or place.kernel()},
    }


def _metric(number: int, address: str, place: Place) -> dict[str, Any]:
    """Return what ``amd-smi metric`` reports of a chip; faults: ``ecc`` (ADDRESS COUNT) and ``hot`` (ADDRESS)."""
    fault, _blank, count = (place.fault("ecc") or "").partition(" ")
    hot = place.fault("hot") == address
    return {
        "gpu": number,
        "power": {"socket_power": {"value": 741, "unit": "W"}, "throttle_status": "N/A"},
        "temperature": {
            "edge": "N/A",
            "hotspot": {"value": 103 if hot else 71, "unit": "C"},
            "mem": {"value": 58, "unit": "C"},
        },
        "pcie": {
            "width": 16,
            "speed": {"value": 32, "unit": "GT/s"},
            "replay_count": 0,
            "replay_roll_over_count": 0,
            "nak_sent_count": 0,
            "nak_received_count": 0,
        },
        "ecc": {
            "total_correctable_count": 0,
            "total_uncorrectable_count": int(count) if fault == address else 0,
            "total_deferred_count": 0,
        },
        "ecc_blocks": {"XGMI_WAFL": {"correctable_count": 0, "uncorrectable_count": 0, "deferred_count": 0}},
        "throttle": {
            "accumulation_counter": 8213780,
            "prochot_accumulated": 0,
            "ppt_accumulated": 2,
            "socket_thermal_accumulated": 4 if hot else 0,
            "vr_thermal_accumulated": 0,
            "hbm_thermal_accumulated": 0,
            "ppt_violation_status": "ACTIVE",
            "socket_thermal_violation_status": "ACTIVE" if hot else "NOT ACTIVE",
        },
    }


def _version(place: Place) -> str:
    return place.read("sys/module/amdgpu/version")
