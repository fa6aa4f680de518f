# SPDX-License-Identifier: GPL-3.0-or-later
"""Let Ironic's agent wipe the named disks of a server, where its own steps take all disks that are not excluded."""

from __future__ import annotations

from typing import Any, Callable

from .disk_marks_host import parts_of, refusal
from .named_disks import Device, NamedDiskError, devices_of

ARGUMENTS = {
    "disks": {"description": "Serial numbers or WWNs of the disks.", "required": True},
    "secure": {"description": "Whether all of their content is erased.", "required": False},
}


def wipe(agent: Callable[..., Any], node: dict[str, Any], ports: Any, disks: list[str], secure: bool) -> str:
    """Wipe these disks; ``agent`` calls a function of the agent's hardware managers by name.

    Raises NamedDiskError, before anything is wiped, where a disk is missing or holds a host that is not released.
    """
    released = str((node.get("extra") or {}).get("released") or "")
    chosen = devices_of(map(_device, agent("list_block_devices")), disks)
    for device in chosen:
        reason = refusal(device, released)
        if reason:
            raise NamedDiskError(reason)
    allowed = {name for device in chosen for name in parts_of(device)}
    every = agent("list_block_devices", include_partitions=True)
    skipped = [{"name": f"s== {device.name}"} for device in every if device.name not in allowed]
    node = {**node, "properties": {**node["properties"], "skip_block_devices": skipped}}
    # What the agent itself would take now.
    taken = {device.name for device in agent("list_block_devices_check_skip_list", node, include_partitions=True)}
    if not set(chosen) <= taken <= allowed:
        wrong = ", ".join(sorted(taken ^ set(chosen)))
        raise NamedDiskError(f"the agent would not wipe {', '.join(chosen)} alone (see {wrong}); nothing was wiped")
    agent("erase_devices" if secure else "erase_devices_metadata", node, ports)
    return f"wiped {', '.join(chosen)}"


def _device(device: Any) -> Device:
    wwns = (device.wwn, device.wwn_with_extension)
    return Device(device.name, device.serial or "", tuple(str(wwn) for wwn in wwns if wwn))
