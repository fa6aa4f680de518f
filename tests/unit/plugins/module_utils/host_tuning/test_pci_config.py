# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import struct

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.pci_config import acs_control, port_type


def config_of(kind, extended=((0x0001, 0x140), (0x000D, 0)), size=4096):
    """Return a configuration space with the type of port, and extended capabilities as (id, next)."""
    config = bytearray(size)
    config[0x34] = 0x40
    config[0x40:0x42] = bytes([0x01, 0x60])  # power management, then PCI Express
    config[0x60:0x64] = bytes([0x10, 0x00, kind << 4 | 2, 0x00])
    offset = 0x100
    for capability, following in extended:
        if offset + 8 <= size:
            struct.pack_into("<I", config, offset, following << 20 | 1 << 16 | capability)
        offset = following
    return bytes(config)


def test_acs_of_a_switch_is_found():
    assert port_type(config_of(6)) == 6
    assert acs_control(config_of(6)) == 0x146


@pytest.mark.parametrize("kind", [0, 4, 7])
def test_other_functions_are_left_alone(kind):
    assert acs_control(config_of(kind)) is None


@pytest.mark.parametrize(
    "config",
    [
        b"",
        bytes(64),
        config_of(6, size=256),
        config_of(6, ((0x0001, 0),)),
        config_of(6, ((0x0001, 0x100),)),  # a ring
        b"\xff" * 4096,
    ],
)
def test_a_function_without_acs_or_with_damage_has_none(config):
    assert acs_control(config) is None
