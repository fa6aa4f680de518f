# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import (
    CpuError,
    parse_cpu,
    read_cpu,
)

from tests.fakes.sysfs import MEMINFO, arm, write_procfs, write_sysfs, x86


def test_an_x86_server():
    cpu = parse_cpu(x86(sockets=2, cores=3, threads=2), MEMINFO, 2, "x86_64")
    assert cpu.as_dict() == {
        "arch": "x86_64",
        "model": "Intel(R) Xeon(R) 6980P",
        "instruction_sets": ["avx2", "avx512f", "avx512_bf16", "amx_bf16"],
        "cores": 6,
        "threads": 12,
        "numa_nodes": 2,
        "memory_mib": 1547642,
    }


def test_an_x86_without_any_of_the_sets():
    assert parse_cpu(x86("fpu sse4_2 avx"), MEMINFO, 1, "x86_64").instruction_sets == []


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        ("0x41", "0xd4f", "Neoverse-V2"),
        ("0x48", "0xd01", "Kunpeng-920"),
        ("0x99", "0x001", "implementer 0x99 part 0x001"),
    ],
)
def test_an_arm_server_is_named_by_its_part(implementer, part, name):
    cpu = parse_cpu(arm(implementer=implementer, part=part), MEMINFO, 1, "x86_64")
    assert (cpu.arch, cpu.model, cpu.cores, cpu.threads) == ("aarch64", name, 4, 4)
    assert cpu.instruction_sets == ["asimd", "asimddp", "sve", "i8mm", "bf16"]


def test_another_architecture_is_what_the_kernel_calls_it():
    cpu = parse_cpu("processor\t: 0\ncpu\t\t: POWER10, altivec supported\n", MEMINFO, 1, "ppc64le")
    assert (cpu.arch, cpu.model, cpu.instruction_sets) == ("ppc64le", "POWER10, altivec supported", [])


def test_meminfo_without_a_total_is_an_error():
    with pytest.raises(CpuError, match="meminfo has no line 'MemTotal: <number> kB'"):
        parse_cpu(x86(), "MemFree: 1 kB\n", 1, "x86_64")


def test_numa_nodes_are_counted_and_a_kernel_without_numa_is_one(tmp_path):
    proc = write_procfs(tmp_path / "proc")
    sysfs = write_sysfs(tmp_path / "sys", [], nodes=4)
    (sysfs / "devices/system/node/possible").write_text("0-3\n")
    assert read_cpu(str(proc), str(sysfs), "x86_64").numa_nodes == 4
    assert read_cpu(str(proc), str(tmp_path / "none"), "x86_64").numa_nodes == 1


def test_procfs_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(
        CpuError, match=f"{tmp_path}/cpuinfo: cannot be read: No such file or directory; is procfs mounted"
    ):
        read_cpu(str(tmp_path), "/sys", "x86_64")
