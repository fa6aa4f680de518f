# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.named_disks import (
    Device,
    NamedDiskError,
    devices_of,
)

DISKS = [
    Device("/dev/nvme0n1", "DATA0001", ["eui.1"]),
    Device("/dev/nvme1n1", "OSDISK0001", ["eui.2", "eui.2.long"]),
    Device("/dev/sda", "", []),
]


def test_disks_are_found_by_serial_number_or_wwn_whatever_their_names():
    assert devices_of(DISKS, ["OSDISK0001"]) == ["/dev/nvme1n1"]
    assert devices_of(reversed(DISKS), ["eui.2.long", "DATA0001"]) == ["/dev/nvme1n1", "/dev/nvme0n1"]


@pytest.mark.parametrize(
    ("disks", "said"),
    [
        ([], "no disk is named"),
        (["OSDISK"], "no disk is called 'OSDISK'; the disks are /dev/nvme0n1 DATA0001, /dev/nvme1n1 OSDISK0001, "),
        ([""], "no disk is called ''"),
        (["OSDISK0001", "eui.2"], "two of the named disks are the same device"),
        (["OSDISK0001", "OSDISK0002"], "no disk is called 'OSDISK0002'"),
    ],
)
def test_a_disk_that_is_not_there_or_named_twice_is_an_error(disks, said):
    with pytest.raises(NamedDiskError) as error:
        devices_of(DISKS, disks)
    assert said in str(error.value)


def test_two_disks_with_one_serial_number_are_an_error():
    with pytest.raises(NamedDiskError, match="2 disks are called 'DATA0001'"):
        devices_of([*DISKS, Device("/dev/sdb", "DATA0001")], ["DATA0001"])
