# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for the output of amd-smi, rocm-smi and the kernel about AMD's chips."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.foreign_json import find_document
from ..common.foreign_numbers import read_count

AMD_SMI = ("amd-smi", "static", "--asic", "--bus", "--driver", "--json")
ROCM_SMI = ("rocm-smi", "--showproductname", "--showbus", "--json")

_AMD = 0x1002
# How a record of the driver begins; what follows is its message.
_PREFIX = re.compile(
    r"(?=amdgpu|\[drm)(?:amdgpu (?P<chip>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:amdgpu: )?|amdgpu: )?"
    r"(?:\[drm(?::[\w.]+)?(?: \[amdgpu\])?\] )?(?:\*ERROR\* )?(?:\{\d+\} ?)?(?:socket: \d+,? (?:die: \d+,? )?)?"
)


@dataclass(frozen=True)
class GpuAnswer:
    """One chip in the output of a tool; values that the tool omits are empty.

    ``address`` is the kernel's form of the PCI address, with function 0; partitions of a chip have other functions.
    """

    address: str
    name: str = ""
    generation: str = ""
    driver_version: str = ""


def chip_address(text: str) -> str:
    """Return the address of the chip of a device or partition: 0000:0c:00.0 for 0000:0C:00.3."""
    return re.sub(r"\.[0-7]$", ".0", text.strip().lower())


def parse_messages(log: str) -> list[tuple[str, str]]:
    """Return the driver's messages in the kernel's log, each with its chip's address, empty where it names none."""
    found = []
    for line in log.split("\n"):
        match = _PREFIX.match(line)
        if match and match.end():
            found.append((chip_address(match["chip"] or ""), line[match.end() :]))
    return found


def parse_amd_smi(text: str) -> list[GpuAnswer]:
    """Return the chips in ``amd-smi static --json``, each once; empty for any other text.

    Since ROCm 7 the output is an object with the list in ``gpu_data``, before it the list itself. Other lines may
    precede it.
    """
    document = find_document(text)
    entries = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        return []
    found: dict[str, GpuAnswer] = {}
    for entry in entries:
        address = _text(entry, "bus", "bdf")
        if address:
            gpu = GpuAnswer(
                chip_address(address),
                _text(entry, "asic", "market_name"),
                _text(entry, "asic", "target_graphics_version"),
                _text(entry, "driver", "version"),
            )
            found.setdefault(gpu.address, gpu)
    return list(found.values())


def parse_rocm_smi(text: str) -> list[GpuAnswer]:
    """Return the chips in ``rocm-smi --json``, each once; empty for any other text."""
    document = find_document(text)
    if not isinstance(document, dict):
        return []
    found: dict[str, GpuAnswer] = {}
    for name in sorted(document):
        address = _text(document, name, "PCI Bus")
        if name.startswith("card") and address:
            series = _text(document, name, "Card Series") or _text(document, name, "Card series")
            gpu = GpuAnswer(chip_address(address), series, _text(document, name, "GFX Version"))
            found.setdefault(gpu.address, gpu)
    return list(found.values())


def parse_kfd(nodes: Sequence[str]) -> list[GpuAnswer]:
    """Return the chips among the nodes of KFD, each once, from the texts of their ``properties``."""
    found: dict[str, GpuAnswer] = {}
    for text in nodes:
        pairs = (line.split() for line in text.splitlines())
        numbers = ((pair[0], read_count(pair[1])) for pair in pairs if len(pair) == 2)
        values = {name: number for name, number in numbers if number is not None}
        # Processors are nodes, too.
        if values.get("vendor_id") == _AMD and values.get("simd_count"):
            location = values.get("location_id", 0)
            address = f"{values.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"
            found.setdefault(address, GpuAnswer(address, generation=gfx_of(values.get("gfx_target_version", 0))))
    return list(found.values())


def gfx_of(number: int) -> str:
    """Return the gfx target for KFD's number: gfx90a for 90010, gfx1201 for 120001; empty for 0."""
    return f"gfx{number // 10000}{number // 100 % 100}{number % 100:x}" if number else ""


def _text(entry: Any, *names: str) -> str:
    """Return a text deep in a document, empty where it is missing or says "unknown"."""
    for name in names:
        entry = entry.get(name) if isinstance(entry, Mapping) else None
    return entry.strip() if isinstance(entry, str) and entry.strip() not in ("N/A", "n/a") else ""
