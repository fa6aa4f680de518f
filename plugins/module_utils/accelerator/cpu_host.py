# SPDX-License-Identifier: GPL-3.0-or-later
"""The processor and the memory of a host, from procfs and sysfs, as far as vLLM depends on them."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from typing import Any

# The instruction sets that vLLM's CPU builds distinguish, in the usual order of /proc/cpuinfo.
INSTRUCTION_SETS = {
    "x86_64": ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"),
    "aarch64": ("asimd", "asimddp", "sve", "i8mm", "bf16"),
}

# Arm processors do not report their names: (implementer, part) of those found in inference servers.
ARM_PARTS = {
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x48", "0xd01"): "Kunpeng-920",
    ("0xc0", "0xac3"): "Ampere-1",
}


class CpuError(ValueError):
    """Processor or memory cannot be read; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Cpu:
    """All processors of a host together.

    ``cores`` counts physical cores, ``threads`` what the kernel schedules on; both are equal on Arm, which does not
    report the difference. ``instruction_sets`` holds those of INSTRUCTION_SETS that every build of vLLM may use here.
    ``memory_mib`` is the kernel's memory, a little less than the installed memory.
    """

    arch: str
    model: str
    instruction_sets: list[str]
    cores: int
    threads: int
    numa_nodes: int
    memory_mib: int

    def as_dict(self) -> dict[str, Any]:
        """Return the processors as plain data, JSON-serialisable."""
        return asdict(self)


def parse_cpu(cpuinfo: str, meminfo: str, numa_nodes: int, machine: str) -> Cpu:
    """Return the processors described by the texts of /proc/cpuinfo and /proc/meminfo.

    ``machine`` (``uname -m``) is the architecture where cpuinfo is neither that of an x86 nor of a 64-bit Arm.
    """
    processors = [
        _fields(block) for block in cpuinfo.split("\n\n") if re.search(r"^processor\s*:", block, re.MULTILINE)
    ]
    first = processors[0] if processors else {}
    arch = "x86_64" if "flags" in first else "aarch64" if "Features" in first else machine
    flags = set(first.get("flags", first.get("Features", "")).split())
    cores = {(fields.get("physical id"), fields["core id"]) for fields in processors if "core id" in fields}
    return Cpu(
        arch=arch,
        model=_model(first),
        instruction_sets=[name for name in INSTRUCTION_SETS.get(arch, ()) if name in flags],
        cores=len(cores) or len(processors),
        threads=len(processors),
        numa_nodes=numa_nodes,
        memory_mib=_memory_mib(meminfo),
    )


def read_cpu(proc_root: str, sysfs_root: str, machine: str) -> Cpu:
    """Return the processors of the host below these two roots. Raises CpuError."""
    return parse_cpu(
        _read(os.path.join(proc_root, "cpuinfo")),
        _read(os.path.join(proc_root, "meminfo")),
        _count_nodes(os.path.join(sysfs_root, "devices", "system", "node")),
        machine,
    )


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _colon, value in pairs}


def _model(fields: dict[str, str]) -> str:
    """Return the processor's name; its Arm part number where it has none."""
    for key in ("model name", "Model Name", "cpu"):
        if fields.get(key):
            return fields[key]
    implementer, part = fields.get("CPU implementer", ""), fields.get("CPU part", "")
    if not implementer:
        return "unknown"
    return ARM_PARTS.get((implementer, part), f"implementer {implementer} part {part}")


def _memory_mib(meminfo: str) -> int:
    found = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", meminfo, re.MULTILINE)
    if not found:
        raise CpuError("meminfo has no line 'MemTotal: <number> kB'; is procfs mounted?")
    return int(found.group(1)) // 1024


def _count_nodes(path: str) -> int:
    """Return the number of NUMA nodes; a kernel without NUMA lists none and counts as one node."""
    try:
        names = os.listdir(path)
    except OSError:
        return 1
    return sum(bool(re.match(r"node[0-9]+\Z", name)) for name in names) or 1


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError as exc:
        raise CpuError(f"{path}: cannot be read: {exc.strerror}; is procfs mounted?") from exc
