# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.chip_identity.answers import (
    Identity,
    parse_amd,
    parse_huawei,
    parse_nvidia,
)

CHIP = "0000:1b:00.0"


def test_nvidia():
    text = "00000000:43:00.0, 1654523001235, 96.00.A5.00.1A\n00000000:1B:00.0, 1654523001234, 96.00.A5.00.1A\n"
    assert parse_nvidia(text) == [
        Identity(CHIP, "1654523001234", "96.00.A5.00.1A"),
        Identity("0000:43:00.0", "1654523001235", "96.00.A5.00.1A"),
    ]


@pytest.mark.parametrize("none", ["[N/A]", "N/A", "0000000000000", "0", "", "[Unknown Error]", "[Not Supported]"])
def test_a_value_that_says_that_there_is_none(none):
    assert parse_nvidia(f"00000000:1B:00.0, {none}, {none}\n") == [Identity(CHIP)]


@pytest.mark.parametrize("text", ["", "No devices were found\n", "a, b\n", "x, 1, 2\n", "a,b,c,d\n"])
def test_anything_else_is_no_chip(text):
    assert parse_nvidia(text) == []


def test_amd_has_a_serial_number_or_else_a_unique_id():
    files = {
        "serial_number": "692347000123\n",
        "unique_id": "8a1f3c5e7b9d1234\n",
        "vbios_version": "113-M3000100-102\n",
    }
    assert parse_amd({CHIP: files}) == [Identity(CHIP, "692347000123", "113-M3000100-102")]
    for missing in ("", "N/A\n", "ffffffffffffffff\n"):
        assert parse_amd({CHIP: {**files, "serial_number": missing}}) == [
            Identity(CHIP, "8a1f3c5e7b9d1234", "113-M3000100-102")
        ]
    assert parse_amd({CHIP: {}}) == [Identity(CHIP)]


def test_huawei():
    text = "\tNPU ID             : 0\n\tSerial Number  : 033SPY10M3000012\n\tFirmware Version : 7.5.0.1.129\n"
    assert parse_huawei({CHIP: text, "elsewhere": text}) == [Identity(CHIP, "033SPY10M3000012", "7.5.0.1.129")]


def test_a_value_is_one_line_for_people():
    assert parse_amd({CHIP: {"serial_number": "12\x1b[31m34" + "5" * 100}})[0].serial == "12[31m34" + "5" * 56
