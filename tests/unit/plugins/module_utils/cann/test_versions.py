# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of Huawei's versions, and the firmware that a driver accepts."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.versions import is_older, is_same, order, takes


def test_early_versions_come_before_their_final_one():
    versions = [
        "24.1.rc3", "24.1.0", "25.0.rc1", "25.0.rc1.1", "25.0", "25.0.1", "25.2.3", "25.10", "26.0.RC1", "26.0",
    ]  # fmt: skip
    for before, after in zip(versions, versions[1:]):
        assert is_older(before, after) and not is_older(after, before), (before, after)


def test_a_beta_comes_before_its_final_version():
    assert is_older("9.2.0-beta.2", "9.2.0") and is_older("9.2.0-beta.1", "9.2.0-beta.2")


@pytest.mark.parametrize("pair", [("25.0", "25.0.0"), ("25.0.0.0", "25.0"), ("7.5.0.1.129", "7.5.0.1.129")])
def test_missing_parts_are_zero(pair):
    assert not is_older(*pair) and not is_older(*reversed(pair))


def test_texts_of_one_version_are_the_same():
    assert is_same("26.0.RC1", "26.0.rc1") and is_same("9.2.0-beta.2", "9.2.0_beta.2")
    assert not is_same("26.0", "26.0.rc1")


@pytest.mark.parametrize(
    ("ranges", "version", "accepted"),
    [
        ("[7.0.0,7.7.99]", "7.0.0", True),
        ("[7.0.0,7.7.99]", "7.7.99", True),
        ("[7.0.0,7.7.99]", "7.8", False),
        ("[7.0.0,7.7.99]", "6.4.12", False),
        ("[7.0.0,7.7.99]", "7.0.rc1", False),
        ("[25.0,25.0.],[24.1,24.1.]", "25.0", True),
        ("[25.0,25.0.],[24.1,24.1.]", "25.0.RC1", True),
        ("[25.0,25.0.],[24.1,24.1.]", "24.1.3", True),
        ("[25.0,25.0.],[24.1,24.1.]", "25.1", False),
        ("[25.0,25.0.],[24.1,24.1.]", "25.01", False),
        ("", "25.0", False),
        ("25.0", "25.0", False),
    ],
)
def test_which_firmware_a_driver_accepts(ranges, version, accepted):
    assert takes(ranges, version) is accepted


@pytest.mark.parametrize("text", ["", "...", "9" * 5000, "\u0667.\u0661", "rc"])
def test_no_text_of_a_file_is_an_error(text):
    assert order(text) >= []
    assert not is_older(text, text)
