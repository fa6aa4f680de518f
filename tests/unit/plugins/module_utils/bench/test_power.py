# SPDX-License-Identifier: GPL-3.0-or-later
"""The power in the answers of the vendors' tools, and the energy of a window."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.power import (
    Power,
    energy,
    parse_power,
    power_command,
)

from tests.fakes.ascend import TABLE_950

NVIDIA = "0, 412.50, 700.00\n1, 388.25, 650.00\n2, [N/A], 700.00\n"
# One chip on each card (910B4), and a card of two chips whose second row has a dash (910C).
ASCEND = """
| npu-smi 24.1.0                   Version: 24.1.0                                                |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 86.0        40                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3366 / 32768         |
| 1     910B4               | OK            | 91.5        40                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3366 / 32768         |
| 2     Ascend910           | OK            | 170.1       37                0    / 0             |
| 0     4                   | 0000:9D:00.0  | 0           0    / 0          3113 / 65536         |
| 2     Ascend910           | OK            | -           37                0    / 0             |
| 1     5                   | 0000:9F:00.0  | 0           0    / 0          2868 / 65536         |
"""


def amd(*watts):
    return [{"gpu": number, "power": {"socket_power": value}} for number, value in enumerate(watts)]


@pytest.mark.parametrize(
    ("stack", "text", "chips", "expected"),
    [
        ("cuda", NVIDIA, [0], Power(412.5, 700)),
        ("cuda", NVIDIA, [0, 1], Power(800.75, 650)),
        ("cuda", NVIDIA, [2], None),
        ("cuda", NVIDIA, [3], None),
        ("cuda", "Failed to initialize NVML: Driver/library version mismatch\n", [0], None),
        ("rocm", json.dumps(amd({"value": 140, "unit": "W"}, {"value": 150, "unit": "W"})), [0, 1], Power(290)),
        ("rocm", json.dumps({"gpu_data": amd("140 W")}), [0], Power(140)),
        ("rocm", json.dumps(amd("N/A")), [0], None),
        ("rocm", json.dumps(amd(140)), [1], None),
        ("rocm", "ERROR", [0], None),
        ("rocm", '{"gpu_data": 3}', [0], None),
        ("cann", TABLE_950, [0, 1], Power(195.1 + 207.2)),
        ("cann", ASCEND, [0, 1], Power(177.5)),
        ("cann", ASCEND, [2, 3], Power(170.1)),
        # Half of a card has no figure of its own.
        ("cann", ASCEND, [2], None),
        ("cann", ASCEND, [3], None),
        ("cann", ASCEND, [4], None),
        ("cann", "dcmi module initialize failed. ret is -8005", [0], None),
        ("cpu", NVIDIA, [0], None),
    ],
)
def test_the_power_of_the_chips(stack, text, chips, expected):
    assert parse_power(stack, text, chips) == expected


def test_a_cpu_has_no_tool():
    assert power_command("cpu", []) == () and power_command("cuda", []) == ()
    assert power_command("cuda", [0])[0] == "nvidia-smi"


def test_only_the_samples_of_the_window_count():
    samples = [(0.0, 80.0), (10.0, 400.0), (11.0, 500.0), (12.0, 600.0), (13.0, 80.0)]
    assert energy(samples, 9.5, 3.0) == 1500.0
    assert energy(samples, 9.5, 2.0) is None
