# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.pci_tree import (
    acs_redirects,
    bridges_in,
    shared,
)

ROOT = "/sys/devices/pci0000:15"


def test_bridges_above_a_function():
    assert bridges_in(f"{ROOT}/0000:15:01.0/0000:16:00.0/0000:17:00.0") == ["0000:15:01.0", "0000:16:00.0"]
    assert bridges_in(f"{ROOT}/0000:15:02.0") == []
    assert bridges_in("/sys/devices/virtual/net/lo") == []


def test_bridges_in_common():
    assert shared(["a", "b", "c"], ["a", "b", "d"]) == 2
    assert shared(["a"], ["a", "b"]) == 1
    assert shared(["x", "b"], ["a", "b"]) == 0 and shared([], ["a"]) == 0


@pytest.mark.parametrize(
    ("control", "redirects"),
    [(0, False), (0b0001, False), (0b0100, True), (0b1000, True), (0b1_0000, False), (0b1_1111, True)],
)
def test_acs(control, redirects):
    data = bytes(0x100) + (0x000D | 1 << 16).to_bytes(4, "little") + bytes(2) + control.to_bytes(2, "little")
    assert acs_redirects(data) is redirects


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(64),
        bytes(4096),
        b"\xff" * 4096,
        # A list that leads back to itself, to the first registers, and past the end.
        bytes(0x100) + (0x0001 | 0x100 << 20).to_bytes(4, "little") + bytes(100),
        bytes(0x100) + (0x0001 | 0x010 << 20).to_bytes(4, "little") + bytes(100),
        bytes(0x100) + (0x0001 | 0xFFC << 20).to_bytes(4, "little"),
    ],
)
def test_damaged_registers(data):
    assert acs_redirects(data) is False
