# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of accelerator drivers and firmware from the kernel, without the vendors' tools. Runs on the host."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from ..common.files_host import text_of

# The file in which Huawei's driver package states its version.
ASCEND_DRIVER = "/usr/local/Ascend/driver/version.info"

# In /proc/driver/nvidia/version, and in Huawei's file.
NVRM_VERSION = re.compile(r"^NVRM version:.*?(\d+\.\d+(?:\.\d+)?)\s", re.MULTILINE)
ASCEND_VERSION = re.compile(r"^\s*Version\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)


def read_drivers(
    sysfs_root: str = "/sys", proc_root: str = "/proc", ascend_driver: str = ASCEND_DRIVER
) -> dict[str, dict[str, Any]]:
    """Return by vendor the ``version`` of the loaded driver, and for AMD ``mec_firmware``; missing values are left out.

    The kernel's own amdgpu has no version. ``mec_firmware`` is the lowest of all cards: the number that rocm-smi
    shows (UNCONFIRMED on hardware: read where its library reads it).
    """
    nvidia = _line(os.path.join(sysfs_root, "module", "nvidia", "version")) or first_group(
        NVRM_VERSION, text_of(os.path.join(proc_root, "driver", "nvidia", "version"))
    )
    amd: dict[str, Any] = {
        "version": _line(os.path.join(sysfs_root, "module", "amdgpu", "version")),
        "mec_firmware": _lowest(os.path.join(sysfs_root, "class", "drm", "card*", "device", "fw_version")),
    }
    found = {
        "nvidia": {"version": nvidia},
        "amd": amd,
        "ascend": {"version": first_group(ASCEND_VERSION, text_of(ascend_driver))},
    }
    known = {vendor: {key: value for key, value in part.items() if value} for vendor, part in found.items()}
    return {vendor: part for vendor, part in known.items() if part}


def _lowest(pattern: str) -> int | None:
    texts = [text_of(os.path.join(directory, "mec_fw_version")).strip() for directory in sorted(glob.glob(pattern))]
    numbers = [int(text, 0) for text in texts if re.match(r"(0x[0-9a-fA-F]+|\d+)\Z", text)]
    return min(numbers) if numbers else None


def first_group(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the first group of the first match, None where there is none."""
    match = pattern.search(text)
    return match.group(1) if match else None


def _line(path: str) -> str | None:
    return text_of(path).strip() or None
