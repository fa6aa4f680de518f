# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.locks import (
    HERE,
    OTHER,
    SILENT,
    Lock,
    describe,
    refusal,
    removal_refusal,
)

from tests.fakes.provision_entries import IMAGE, entry, server


def lock(answers=SILENT, released=False, at_ironic=False):
    return Lock(answers, released, at_ironic)


def test_a_server_that_is_off_with_the_right_disk_is_not_refused():
    assert refusal(entry(), server(), {}, lock()) is None


@pytest.mark.parametrize("released", [False, True])
def test_another_server_is_refused_also_when_the_host_is_released(released):
    said = refusal(entry(bmc_serial="SRV9"), server(), {}, lock(released=released))
    assert "shows the serial number 'SRV0001', provision.bmc_serial says 'SRV9': it is another server" in (said or "")
    said = refusal(entry(), server(), {"bmc_serial": "SRV8"}, lock(released=released))
    assert "the record of the last run says 'SRV8'" in (said or "")
    said = refusal(entry(bmc_serial="SRV9"), server(serial=""), {}, lock(released=released))
    assert "shows the serial number 'nothing'" in (said or "")
    # The inventory's own word is stronger than the record, for a board that was replaced.
    assert refusal(entry(bmc_serial="SRV0001"), server(), {"bmc_serial": "SRV8"}, lock(released=released)) is None


@pytest.mark.parametrize("released", [False, True])
def test_a_disk_that_the_bmc_does_not_list_is_refused(released):
    said = refusal(entry(root_serial="TYPO"), server(), {}, lock(released=released))
    assert "the BMC lists no such disk; it lists S6CKNX0T, DATA0001" in (said or "")
    assert refusal(entry(root_serial="TYPO"), server(disks=()), {}, lock(released=released)) is None


@pytest.mark.parametrize("answers", [HERE, OTHER])
def test_a_host_that_answers_is_refused_unless_it_is_released(answers):
    said = refusal(entry(), server(power="On"), {}, lock(answers, at_ironic=True))
    assert "10.0.1.11 answers SSH" in (said or "")
    assert "-e provision_release=gpu-a-01" in (said or "")
    assert refusal(entry(), server(power="On"), {}, lock(answers, released=True)) is None


@pytest.mark.parametrize("power", ["On", "PoweringOn", "PoweringOff"])
def test_a_server_that_is_on_is_refused_unless_an_order_is_under_way(power):
    assert "may serve under another address" in (refusal(entry(), server(power=power), {}, lock()) or "")
    assert refusal(entry(), server(power=power), {}, lock(at_ironic=True)) is None


def test_nothing_but_the_named_disk_of_the_named_server_passes_all_locks():
    """Two disks, changed names, foreign servers, serving hosts: of all combinations only the right ones pass."""
    serials, disks = ("SRV0001", "SRV0002"), (("S6CKNX0T", "DATA0001"), ("DATA0001", "S6CKNX0T"), ("DATA0001",))
    passed = []
    for serial, names, answers, power in itertools.product(serials, disks, (SILENT, HERE, OTHER), ("On", "Off")):
        shown = server(
            serial=serial, power=power, disks=tuple(d for n in names for d in server().disks if d.serial == n)
        )
        if refusal(entry(bmc_serial="SRV0001"), shown, {}, lock(answers)) is None:
            passed.append((serial, names, answers, power))
    assert passed == [("SRV0001", names, SILENT, "Off") for names in disks[:2]]


def test_check_mode_names_image_disk_and_server():
    assert describe(entry(), server(), IMAGE) == (
        "gpu-a-01: would write debian13 (build 20261128-4f1c) to the disk with serial number S6CKNX0T (PM9A3, 960 GB) "
        "of Example GPU-8, serial number SRV0001, power Off, at https://10.1.0.11"
    )
    assert "(the BMC lists no disks)" in describe(entry(), server(disks=()), IMAGE)
    wwn = entry(root_serial=None, root_wwn="eui.01")
    assert "the disk with WWN eui.01 (the BMC does not list it)" in describe(wwn, server(), IMAGE)


def test_a_wwn_is_left_to_the_ramdisk_because_a_bmc_lists_serial_numbers():
    by_wwn = entry(root_serial=None, root_wwn="5000c500a1b2c3d4")
    for disk in ("5000c500a1b2c3d4", "0x5000c500a1b2c3d4", "eui.0025385b11b3d1c7", "S6CKNX0T"):
        assert removal_refusal(by_wwn, server(), {}, lock(), (disk,)) is None
    assert "found TYPO, but the BMC lists no such disk" in (
        removal_refusal(by_wwn, server(), {}, lock(), ("TYPO",)) or ""
    )
