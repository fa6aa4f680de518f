# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of accelerator drivers and firmware from the kernel, without the vendors' tools. Runs on the host."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from ..common.files_host import text_of
from .partitions import partition_text

# The file in which Huawei's driver package states its version.
ASCEND_DRIVER = "/usr/local/Ascend/driver/version.info"

# In /proc/driver/nvidia/version, and in Huawei's file.
NVRM_VERSION = re.compile(r"^NVRM version:.*?(\d+\.\d+(?:\.\d+)?)\s", re.MULTILINE)
ASCEND_VERSION = re.compile(r"^\s*Version\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)


def read_drivers(
    sysfs_root: str = "/sys", proc_root: str = "/proc", ascend_driver: str = ASCEND_DRIVER
) -> dict[str, dict[str, Any]]:
    """Return by vendor the ``version`` of the loaded driver, and for AMD ``mec_firmware`` and ``partition``.

    Missing values are left out.

    The kernel's own amdgpu has no version. ``mec_firmware`` is the lowest of all cards: the number that rocm-smi
    shows (UNCONFIRMED on hardware: read where its library reads it). ``partition`` are the modes of the chips, such as
    CPX/NPS4, each once.
    """
    nvidia = _line(os.path.join(sysfs_root, "module", "nvidia", "version")) or first_group(
        NVRM_VERSION, text_of(os.path.join(proc_root, "driver", "nvidia", "version"))
    )
    amd: dict[str, Any] = {
        "version": _line(os.path.join(sysfs_root, "module", "amdgpu", "version")),
        "mec_firmware": _lowest(os.path.join(sysfs_root, "class", "drm", "card*", "device", "fw_version")),
        "partition": ", ".join(sorted(set(_partitions(sysfs_root)))),
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


def _partitions(sysfs_root: str) -> list[str]:
    """Return the modes of each chip that AMD's driver can divide."""
    names = sorted(glob.glob(os.path.join(sysfs_root, "bus", "pci", "devices", "*", "current_compute_partition")))
    memory = [os.path.join(os.path.dirname(name), "current_memory_partition") for name in names]
    texts = [partition_text(text_of(one), text_of(other)) for one, other in zip(names, memory)]
    return [text for text in texts if text]


def first_group(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the first group of the first match, None where there is none."""
    match = pattern.search(text)
    return match.group(1) if match else None


def _line(path: str) -> str | None:
    return text_of(path).strip() or None
