# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which Huawei's driver and firmware can be less than whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import Installed
from ansible_collections.baremetal.inference.plugins.module_utils.cann.counters import faults_of
from ansible_collections.baremetal.inference.plugins.module_utils.cann.proof import (
    CannRecording,
    Expected,
    check_driver,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import FaultBook
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host, Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

from tests.fakes.ascend import BOARD, KERNEL, MODINFO, MODULE, cards, duo_table, mapping, table

NEXT = "5.15.0-40-generic"
CHIPS = tuple(f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x18))
NODES = (*(f"/dev/davinci{n}" for n in range(8)), "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
HOST = Host(
    "ubuntu",
    "22.04",
    "jammy",
    "aarch64",
    KERNEL,
    KERNEL,
    secure_boot=False,
    packages={"ascend910b-driver": "26.0.rc1", "ascend910b-firmware": "9.0.0.0.205", f"linux-headers-{KERNEL}": "1"},
    modules={MODULE: Module(None, "AB12CD")},
    dkms=(DkmsBuild("davinci_ascend", "1.0", KERNEL, "installed"),),
    holds=("ascend910b-driver", "ascend910b-firmware"),
)
INSTALLED = Installed(
    driver="26.0.rc1",
    complete=True,
    owner="HwHiAiUser",
    driver_firmwares="[7.0.0,9.9.99]",
    firmware="9.0.0.0.205",
    firmware_drivers="[26.0,26.0.]",
    hdk="26.0.rc1",
    running="26.0.rc1",
    running_firmware="9.0.0.0.205",
    group="HwHiAiUser",
    has_group=True,
)
WHOLE = CannRecording(
    host=HOST,
    chips=CHIPS,
    installed=INSTALLED,
    table=CommandResult(0, table(CHIPS)),
    cards=CommandResult(0, cards(8)),
    mapping=CommandResult(0, mapping(8)),
    boards={"0": BOARD.format(npu=0, version="26.0.rc1", firmware="9.0.0.0.205", compatibility="OK")},
    nodes=NODES,
    dcmi=True,
    disk={KERNEL: MODINFO.format(kernel=KERNEL)},
)
EXPECTED = Expected(driver="26.0.RC1", cann="9.1.0", nodes=NODES)
SILENT = {"cards": CommandResult(127), "mapping": CommandResult(127), "boards": {}}


def found(recording=WHOLE, expected=EXPECTED):
    return [(finding.what, finding.where, finding.action) for finding in check_driver(recording, expected)]


def on_host(**changes):
    return {"host": replace(HOST, **changes)}


def on_disk(**changes):
    return {"installed": replace(INSTALLED, **changes)}


def test_a_host_on_which_all_is_proven_has_no_findings():
    assert found() == []
    assert found(expected=Expected()) == []


def test_two_dies_on_a_card():
    dies = tuple(f"0000:{bus:02x}:00.{die}" for bus in range(8) for die in range(2))
    a3 = replace(
        WHOLE,
        chips=dies,
        table=CommandResult(0, table(dies, "Ascend910", dies=2)),
        cards=CommandResult(0, cards(8, 2)),
        mapping=CommandResult(0, mapping(8, 2, "Ascend910")),
        nodes=(*(f"/dev/davinci{n}" for n in range(16)), "/dev/davinci_manager"),
    )
    assert found(a3, Expected()) == []
    (finding,) = found(replace(a3, cards=CommandResult(0, cards(8, 1))), Expected())
    assert finding[0] == "npu-smi counts 8 chips on 8 cards and maps 16"


CARDS = ("0000:01:00.0", "0000:02:00.0", "0000:81:00.0", "0000:82:00.0")


def duo(name, chips, functions):
    """Return a host with cards of two chips that show one Bus-Id; ``functions`` are those of PCI."""
    rows = [f"{npu} {chip} {2 * npu + chip} Ascend 310P3\n" for npu in range(chips // 2) for chip in range(2)]
    return replace(
        WHOLE,
        chips=functions,
        table=CommandResult(0, duo_table(name)),
        cards=CommandResult(0, cards(chips // 2, 2)),
        mapping=CommandResult(0, "NPU ID  Chip ID  Chip Logic ID  Chip Name\n" + "".join(rows)),
        nodes=(*(f"/dev/davinci{n}" for n in range(chips)), "/dev/davinci_manager"),
    )


@pytest.mark.parametrize("functions", [CARDS[:1], ("0000:01:00.0", "0000:01:00.1")])
def test_a_card_with_two_chips_behind_one_bus_id_is_healthy(functions):
    assert found(duo("one_card", 2, functions), Expected()) == []


def test_four_such_cards_are_healthy_and_a_fifth_that_is_not_listed_is_named():
    assert found(duo("four_cards", 8, CARDS), Expected()) == []
    twice = tuple(f"{card[:-1]}{function}" for card in CARDS for function in range(2))
    assert found(duo("four_cards", 8, twice), Expected()) == []
    lost = found(duo("four_cards", 8, (*twice, "0000:c1:00.0")), replace(EXPECTED, nodes=NODES[:9], driver="", cann=""))
    assert "chip 0000:c1:00.0" in [where for _what, where, _action in lost]


# Of each: what differs from the whole host, and where, what and action of the one finding (their beginnings).
ONES = {
    "old driver": (
        on_disk(driver="25.5.1", running="25.5.1", firmware_drivers="[25.5,25.5.]"),
        "driver and firmware",
        "driver 25.5.1 is installed, the release belongs to 26.0.RC1",
        "set cann_policy to install",
    ),
    "firmware does not fit": (
        on_disk(firmware="6.3.0", running_firmware="6.3.0", firmware_drivers="[23.0.0,23.0.0.]"),
        "driver and firmware",
        "driver 26.0.rc1 and firmware 6.3.0 do not fit",
        "set cann_policy to install and run the role cann; install the firmware first, then the driver",
    ),
    "driver waits": (
        on_disk(running="25.5.1"),
        "driver and firmware",
        "driver 25.5.1 runs, 26.0.rc1 is installed",
        "reboot",
    ),
    "firmware waits": (
        on_disk(running_firmware="7.8.0.6.201"),
        "driver and firmware",
        "firmware 7.8.0.6.201 runs, 9.0.0.0.205 is installed",
        "reboot",
    ),
    "cut off": (
        on_disk(complete=False),
        "/etc/ascend_install.info",
        "the installation of driver 26.0.rc1 was not completed",
        "let the role cann install it again",
    ),
    "dcmi": ({"dcmi": False}, "/usr/local/dcmi", "the driver's interface for containers", "install the driver again"),
    "another build": (
        on_host(modules={MODULE: Module(None, "99")}),
        f"module {MODULE}",
        "the driver that is loaded (srcversion 99) is another build",
        "reboot",
    ),
    "next kernel": (
        on_host(next_kernel=NEXT),
        f"kernel {NEXT}",
        f"the next boot has no driver: there is no module for kernel {NEXT}",
        f"install linux-headers-{NEXT}, then run 'dkms autoinstall -k {NEXT}'",
    ),
    "held": (
        on_host(holds=("ascend910b-driver",)),
        "ascend910b-firmware",
        "an upgrade may replace parts of the driver",
        "run 'apt-mark hold ascend910b-firmware'",
    ),
    "health": (
        {
            "table": CommandResult(0, table(CHIPS, ill=(3,))),
            "health": {"3/0": "\tHealth : Alarm\n\tError Code : 0x80E18402\n"},
        },
        f"chip {CHIPS[3]}",
        "health is Alarm, error 0x80E18402",
        "look it up in Huawei's list of error codes",
    ),
    "compatibility": (
        {"boards": {"0": BOARD.format(npu=0, version="x", firmware="y", compatibility="Not compatible")}},
        "NPU 0",
        "npu-smi reports for driver and firmware: Not compatible",
        "set cann_policy to install and run the role cann",
    ),
    "node": (
        {"nodes": NODES[1:]},
        "/dev/davinci0",
        "1 of 11 device nodes are missing",
        "read why with 'dmesg | grep -i ascend'",
    ),
    "no user": (
        on_disk(group=""),
        "user",
        "the user HwHiAiUser, whose group has access to the chips, does not exist",
        "run 'groupadd HwHiAiUser; useradd -g HwHiAiUser -m HwHiAiUser'",
    ),
    "group": (
        on_disk(group="users"),
        "user",
        "user HwHiAiUser is in group users, expected HwHiAiUser",
        "run 'usermod --gid HwHiAiUser HwHiAiUser'",
    ),
    "owner": (
        on_disk(owner="npu"),
        "/etc/ascend_install.info",
        "the driver was installed for user npu, cann_user is HwHiAiUser",
        "set cann_user to npu",
    ),
    "no tool": (
        {"table": CommandResult(127), **SILENT},
        "npu-smi",
        "npu-smi is not installed",
        "install the driver, which includes the tool",
    ),
    "hangs": (
        {"table": CommandResult(124), **SILENT},
        "npu-smi",
        "npu-smi does not finish",
        "look for a chip in the kernel's log with 'dmesg | grep -i ascend'",
    ),
    "-8005": (
        {"table": CommandResult(255, "dcmi module initialize failed. ret is -8005\n"), **SILENT},
        "npu-smi",
        "npu-smi cannot reach the driver: it is not loaded, or driver and firmware were upgraded",
        "reboot",
    ),
    "dcmi fails": (
        {
            "table": CommandResult(1, "", "dcmi model initialized failed, because the device is used. ret is -8020"),
            **SILENT,
        },
        "npu-smi",
        "npu-smi cannot reach the driver",
        "read why with 'dmesg",
    ),
    "libraries": (
        {
            "table": CommandResult(
                127 - 1, "", "npu-smi: error while loading shared libraries: libc_sec.so: cannot open"
            ),
            **SILENT,
        },
        "npu-smi",
        "npu-smi does not find the driver's libraries",
        "check that /usr/local/Ascend/driver/lib64 exists",
    ),
    "half": (
        {
            "table": CommandResult(
                0, "[WARNING]The driver package may not be completely installed, which may cause\n" + table(CHIPS)
            )
        },
        "npu-smi",
        "the installation of the driver was not completed",
        "let the role cann install it again",
    ),
    "unknown words": (
        {"table": CommandResult(7, "", "a word\nanother word\n"), **SILENT},
        "npu-smi",
        "npu-smi ends with exit status 7; it prints: another word",
        "correct what it reports",
    ),
}


@pytest.mark.parametrize("name", ONES)
def test_one_finding(name):
    changes, where, what, action = ONES[name]
    findings = found(replace(WHOLE, **changes))
    assert len(findings) == 1, findings
    assert findings[0][1] == where
    assert findings[0][0].startswith(what)
    assert findings[0][2].startswith(action)


def test_a_chip_that_npu_smi_does_not_list():
    some = CHIPS[:7]
    (finding,) = found(
        replace(
            WHOLE,
            table=CommandResult(0, table(some)),
            mapping=CommandResult(0, mapping(7)),
            cards=CommandResult(0, cards(7)),
        )
    )
    assert finding[0] == "npu-smi lists 7 of 8 chips on PCI; the driver is not bound to it"
    assert finding[1] == f"chip {CHIPS[7]}"


def test_chips_whose_address_npu_smi_does_not_show():
    """npu-smi of an Ascend 950DT."""
    text = re.sub(r"0000:[0-9A-F]{2}:00\.0", "NA          ", table(CHIPS, ill=(3,)))
    ((what, where, _action),) = found(replace(WHOLE, table=CommandResult(0, text)))
    assert (what, where) == ("health is Alarm", "NPU 3")


def test_a_chip_that_npu_smi_does_not_map():
    (finding,) = found(replace(WHOLE, mapping=CommandResult(0, mapping(7))))
    assert finding[0] == "npu-smi maps 7 chips, PCI has 8"


def test_nothing_is_installed():
    bare = CannRecording(
        host=replace(HOST, packages={}, modules={}, dkms=(), holds=()), chips=CHIPS, installed=Installed()
    )
    assert [what for what, _where, _action in found(bare)] == [
        "no driver of Huawei's is installed",
        f"no driver is loaded: there is no module for kernel {KERNEL}",
        "npu-smi is not installed",
        "the user HwHiAiUser, whose group has access to the chips, does not exist",
    ]


def test_parts_of_cann_where_they_are_wanted():
    wanted = replace(EXPECTED, toolkit=True)
    has = {"toolkit": "9.1.0", "ops": "8.5.1"}
    assert [what for what, _where, _action in found(replace(WHOLE, **on_disk(cann=has)), wanted)] == [
        "CANN's ops is 8.5.1, the release belongs to 9.1.0",
        "CANN's nnal is not installed",
    ]
    assert found(replace(WHOLE, **on_disk(cann={**has, "ops": "9.1.0", "nnal": "9.1.0"})), wanted) == []


def test_holds_that_nobody_wants():
    assert found(replace(WHOLE, **on_host(holds=())), replace(EXPECTED, hold=False)) == []


BOOK = FaultBook.from_document(faults_of_host("cann"))


@pytest.mark.parametrize("health", ["OK", "Warning", "Alarm", "Critical", "NA", "UNKNOWN", "A new word"])
@pytest.mark.parametrize("codes", ["NA", "0x80E01801", "80DE0207, 80E38008", "81078603", "0x80E18402", "0xFFFFFFFF"])
def test_a_host_is_refused_for_what_the_health_service_takes_its_chip_out(health, codes):
    rows = re.sub(r"Alarm( *)", lambda spaces: health.ljust(5 + len(spaces[1])), table(CHIPS, ill=(3,)))
    recording = replace(
        WHOLE, table=CommandResult(0, rows), health={"3/0": f"\tHealth : {health}\n\tError Code : {codes}\n"}
    )
    faults = [BOOK.fault("state", text) for text in faults_of(health)]
    faults += [BOOK.fault("event", code) for code in re.findall("[0-9A-F]{8}", codes)]
    ends_late = any(fault.action in ("reset_chip", "isolate_host") for fault in faults)
    findings = check_driver(recording, EXPECTED, BOOK)
    # Any other health is a warning.
    assert [finding.later for finding in findings] == ([not ends_late] if health != "OK" else [])
