# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json


def fact(host, name):
    return json.loads(host.file(f"/run/accelerator_{name}.json").content_string)


def test_a_host_without_accelerators_is_a_cpu_host_with_its_instruction_sets(host):
    found = fact(host, "as_it_is")
    assert (found["model"], found["stack"], found["vendor"], found["count"]) == ("cpu", "cpu", "cpu", 1)
    assert (found["devices"], found["unknown"]) == ([], [])
    flags = host.file("/proc/cpuinfo").content_string.split()
    assert found["cpu"]["instruction_sets"] == [name for name in found["cpu"]["instruction_sets"] if name in flags]
    assert "avx2" in found["cpu"]["instruction_sets"] or host.system_info.arch != "x86_64"
    total = int(host.file("/proc/meminfo").content_string.split()[1])
    assert found["memory_mib"] == found["cpu"]["memory_mib"] == total // 1024


def test_what_sysfs_shows_is_found(host):
    found = fact(host, "h200")
    assert (found["model"], found["stack"], found["generation"], found["vendor"]) == (
        "h200",
        "cuda",
        "hopper",
        "nvidia",
    )
    assert (found["count"], found["memory_mib"], found["models"]) == (2, 141 * 1024, {"h200": 2})
    assert [(device["address"], device["numa_node"]) for device in found["devices"]] == [
        ("0000:17:00.0", 0),
        ("0000:97:00.0", 1),
    ]
    assert found["unknown"] == []
