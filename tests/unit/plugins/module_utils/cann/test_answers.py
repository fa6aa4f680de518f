# SPDX-License-Identifier: GPL-3.0-or-later
"""What npu-smi and Huawei's files say, in the forms that hosts with their chips have shown; versions of the vendor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import (
    Card,
    ChipFigures,
    ChipRow,
    Installed,
    installed_of,
    mismatch,
    parse_board,
    parse_cann_version,
    parse_cards,
    parse_figures,
    parse_mapping,
    parse_table,
    parse_table_version,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cann.versions import is_older, is_same, takes

from tests.fakes.ascend import (
    BOARD,
    DRIVER_INFO,
    FIRMWARE_INFO,
    INSTALL_INFO,
    TABLE_950,
    TOOLKIT_INFO,
    cards,
    mapping,
    table,
)

# The 310P has large numbers and no column for HBM.
DUO_MAPPING = """\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t32896                          0                              0                              Ascend 310P3
\t32896                          1                              1                              Ascend 310P3
\t32896                          2                              -                              Mcu
"""
DUO_TABLE = """\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.5.1                                   Version: 25.5.1                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 32896   310P3                 | OK              | NA           43                0     / 0             |
| 0       0                     | 0000:81:00.0    | 0            1740 / 44280                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 32896   310P3                 | Warning         | NA           42                0     / 0             |
| 1       1                     | 0000:82:00.0    | 0            1500 / 44280                            |
+===============================+=================+======================================================+
"""
# Newer versions number the devices of the host too.
A3_MAPPING = """\
NPU ID Chip ID Chip Logic ID Chip Phy-ID Chip Name
0 0 0 0 Ascend910
0 1 1 1 Ascend910
0 2 - - Mcu
1 0 2 2 Ascend910
"""
# As https://github.com/vllm-project/vllm-ascend/issues/10463 and https://github.com/SwanHubX/SwanLab/pull/1719 show it.
MAPPING_950 = """\
NPU ID  Slot ID  Chip ID  Chip Phy-ID  Chip Name
0       1        0        0            Ascend950PR
1       2        0        1            Ascend950PR
"""


def test_cards():
    assert parse_cards(cards(2)) == [Card("0", 1), Card("1", 1)]
    assert parse_cards(cards(8, 2))[7] == Card("7", 2)
    products = "\tNPU ID : 5\n\tProduct Name : Atlas 300I\n\tSerial Number : 102\n"
    assert parse_cards(products) == [Card("5", 1)]
    assert parse_cards("dcmi module initialize failed. ret is -8005\n") == []


def test_mapping_leaves_controllers_out():
    assert parse_mapping(mapping(2)) == ["0", "1"]
    assert parse_mapping(mapping(2, 2, "Ascend910")) == ["0", "0", "1", "1"]
    assert parse_mapping(DUO_MAPPING) == ["32896", "32896"]
    assert parse_mapping(A3_MAPPING) == ["0", "0", "1"]
    assert parse_mapping(MAPPING_950) == ["0", "1"]


def test_the_table_of_a_950_has_one_more_column_and_no_chips():
    assert parse_figures(TABLE_950) == [
        (ChipRow("0", "", "Ascend950PR", "OK", "0000:61:00.0"), ChipFigures("195.1", "56", "3", "5240", "131072")),
        (ChipRow("1", "", "Ascend950PR", "Alarm", "0000:71:00.0"), ChipFigures("207.2", "65", "7", "5250", "131072")),
    ]
    assert parse_table_version(TABLE_950) == "25.7.rc1.6"
    assert parse_table(TABLE_950)[1].arguments == ("-i", "1")
    assert parse_table(DUO_TABLE)[1].arguments == ("-i", "32896", "-c", "1")


def test_table():
    found = parse_table(table(["0000:c1:00.0", "0000:81:00.0"], ill=(1,)))
    assert found == [
        ChipRow("0", "0", "910B4", "OK", "0000:c1:00.0"),
        ChipRow("1", "0", "910B4", "Alarm", "0000:81:00.0"),
    ]
    assert parse_table(DUO_TABLE) == [
        ChipRow("32896", "0", "310P3", "OK", "0000:81:00.0"),
        ChipRow("32896", "1", "310P3", "Warning", "0000:82:00.0"),
    ]
    assert parse_table("") == []
    assert parse_table_version(DUO_TABLE) == "25.5.1"
    assert parse_table_version("no such table") == ""


def test_other_forms_of_the_second_row():
    # Ascend 950DT with npu-smi 25.6.rc1, as three public texts show it; 910B3 with 24.1.0.
    rows = parse_table(TABLE_950.replace("0000:71:00.0", "NA          "))
    assert [(row.npu, row.address) for row in rows] == [("0", "0000:61:00.0"), ("1", "")]
    older = table(["0000:c1:00.0"]).replace("| 0                         | 0000", "| 0       NA                | 0000")
    assert parse_table(older) == [ChipRow("0", "0", "910B4", "OK", "0000:c1:00.0")]


def test_board():
    fields = parse_board(BOARD.format(npu=193, version="26.0.rc1", firmware="9.0.0.0.205", compatibility="OK"))
    assert (fields["SoftwareVersion"], fields["FirmwareVersion"]) == ("26.0.rc1", "9.0.0.0.205")
    assert (fields["Compatibility"], fields["PCIeBusInfo"]) == ("OK", "0000:c1:00.0")
    assert parse_board("\tPCIeBusInfo   : 0000:c1:00.0\n")["PCIeBusInfo"] == "0000:c1:00.0"


def test_what_installers_leave():
    files = {"install": INSTALL_INFO, "driver": DRIVER_INFO, "firmware": FIRMWARE_INFO}
    board = BOARD.format(npu=0, version="25.5.1", firmware="7.8.0.6.201", compatibility="OK")
    cann = {"toolkit": TOOLKIT_INFO.format(version="9.1.0", arch="aarch64")}
    assert installed_of(files, table(["0000:c1:00.0"]), board, cann) == Installed(
        driver="26.0.rc1",
        complete=True,
        owner="HwHiAiUser",
        driver_firmwares="[6.4.0,6.4.99],[7.0.0,9.9.99]",
        firmware="9.0.0.0.205",
        firmware_drivers="[24.1,24.1.],[25.0,25.0.],[26.0,26.0.]",
        hdk="26.0.rc1",
        running="25.5.1",
        running_firmware="7.8.0.6.201",
        cann={"toolkit": "9.1.0"},
    )
    assert installed_of({}, "", "", {}) == Installed()
    assert installed_of({}, table([], version="25.2.0"), "", {}).running == "25.2.0"
    cut = INSTALL_INFO.replace("Driver_Install_Status=complete\n", "")
    assert installed_of({**files, "install": cut}, "", "", {}).complete is False


def test_versions_of_cann():
    assert parse_cann_version(TOOLKIT_INFO.format(version="9.2.0-beta.2", arch="x86_64")) == "9.2.0-beta.2"
    assert parse_cann_version("# version\nruntime_running_version=[7.5.0.1.129:8.0.RC3]\n") == "8.0.RC3"
    assert parse_cann_version("") == ""


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("25.5.1", "26.0.RC1"),
        ("26.0.RC1", "26.0.0"),
        ("26.0.rc1", "26.0"),
        ("25.0.rc1", "25.0.rc1.1"),
        ("25.0.rc1.1", "25.0.rc2"),
        ("9.2.0-beta.1", "9.2.0-beta.2"),
        ("9.2.0-beta.2", "9.2.0"),
        ("7.8.0.6.201", "9.0.0.0.205"),
        ("8.3.RC1", "8.3.RC2"),
    ],
)
def test_order_of_versions(older, newer):
    assert is_older(older, newer)
    assert not is_older(newer, older)
    assert not is_older(older, older)


def test_ways_to_write_one_version():
    assert is_same("26.0.RC1", "26.0.rc1")
    assert is_same("9.2.0_beta.2", "9.2.0-beta.2")
    assert not is_same("26.0.rc1", "26.0.rc2")


@pytest.mark.parametrize(
    ("ranges", "version", "expected"),
    [
        ("[7.0.0,7.7.99]", "7.7.0.1.231", True),
        ("[7.0.0,7.7.99]", "7.8.0.6.201", False),
        ("[6.4.0,6.4.99],[7.0.0,8.9.9]", "7.8.0.6.201", True),
        ("[24.1,24.1.],[25.0,25.0.]", "25.0.rc1.1", True),
        ("[24.1,24.1.],[25.0,25.0.]", "25.5.1", False),
        ("[23.0.rc3,23.0.rc3.],[23.0.0,23.0.0.]", "23.0.RC3", True),
        ("", "1.0", False),
    ],
)
def test_what_a_range_takes(ranges, version, expected):
    assert takes(ranges, version) is expected


PAIR = Installed(driver="25.5.1", driver_firmwares="[7.0.0,8.9.9]", firmware="7.8.0.6.201", hdk="25.5.1")


def test_driver_and_firmware_that_fit():
    assert mismatch(PAIR) == ""
    assert mismatch(Installed()) == ""
    assert mismatch(replace(PAIR, firmware="", running_firmware="7.1.0.11.220")) == ""
    # The older of the two cannot know the newer one.
    assert mismatch(replace(PAIR, firmware="9.0.0.0.205", firmware_drivers="[25.5,25.5.],[26.0,26.0.]")) == ""
    assert mismatch(replace(PAIR, driver_firmwares="", firmware_drivers="", hdk="")) == ""


def test_driver_and_firmware_that_do_not_fit():
    assert mismatch(replace(PAIR, firmware="9.0.0.0.205", firmware_drivers="[26.0,26.0.]")) == (
        "driver 25.5.1 and firmware 9.0.0.0.205 do not fit: driver 25.5.1 takes firmware [7.0.0,8.9.9], firmware "
        "9.0.0.0.205 takes driver [26.0,26.0.]"
    )
    assert mismatch(replace(PAIR, firmware="", running_firmware="6.3.0")).startswith("driver 25.5.1 and firmware 6.3.0")
    other = replace(PAIR, driver_firmwares="", hdk="24.1.rc3")
    assert mismatch(other) == "driver 25.5.1 and firmware 7.8.0.6.201 of 24.1.rc3 do not fit"
