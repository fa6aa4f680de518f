# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan Huawei's driver: hosts, requests and files that are refused, each with one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.installers import (
    read_files,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    StackError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.cann.plan import (
    plan_driver as _plan_driver,
)

from tests.fakes.ascend_plans import (
    BOX,
    BY_RUN,
    DUO,
    HOST,
    INSTALL,
    MACHINES,
    NOTHING,
    OLDER,
    ON_ROW,
    REQUEST,
    ROW,
    SETTLED,
    SHA,
    entry,
    files,
    machine,
)
from tests.fakes.driver_plans import halting

plan_driver = halting(_plan_driver)

MIXED = replace(OLDER, cann={"toolkit": "9.1.0", "ops": "9.1.0", "nnal": "9.1.0"})
BAD_FIRMWARE = replace(ON_ROW, driver_firmwares="[7.0.0,8.9.9]")
RUNS = files("910b", "x86-64")
# Of each: host, chips, what is installed, the requested, and words of the one sentence.
HALTS = {
    "no chip": (HOST, machine(), NOTHING, REQUEST, "no Ascend chip is on PCI"),
    "unknown chip": (HOST, machine(("19e5:d100", 4)), NOTHING, REQUEST, "no driver package is known for ascend_310;"),
    "two kinds": (
        HOST,
        machine(("19e5:d802", 1), DUO),
        NOTHING,
        REQUEST,
        "ascend_310p (310p) and ascend_a2 (910b) need different driver packages",
    ),
    "system": (
        replace(HOST, version="11"),
        BOX,
        NOTHING,
        REQUEST,
        "debian 11 is not supported for Huawei's driver; supp",
    ),
    "machine": (replace(HOST, architecture="riscv64"), BOX, NOTHING, REQUEST, "Huawei has no driver for riscv64"),
    "distro": (HOST, BOX, NOTHING, replace(REQUEST, source="distro"), "no distribution has Huawei's driver"),
    "licence": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, licence_accepted=False),
        "driver 26.0.RC1, firmware 9.0.0.0.205 would be installed, and Huawei's licence for them is not accepted",
    ),
    "no source": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, source="none"),
        "it is not on the host, and cann_source is none",
    ),
    "half": (
        BY_RUN,
        BOX,
        replace(ON_ROW, complete=False),
        replace(REQUEST, source="none"),
        "its installation was not completed, and cann_source is none",
    ),
    "halt": (HOST, BOX, NOTHING, replace(REQUEST, policy="halt"), "cann_policy is halt, and these are to be installed"),
    "old driver": (
        SETTLED,
        BOX,
        OLDER,
        REQUEST,
        "driver 25.5.1 is on the host, release 0.23.0 needs 26.0.RC1 or newer with CANN 9.1.0, and cann_policy is ",
    ),
    "rows mixed": (
        SETTLED,
        BOX,
        MIXED,
        REQUEST,
        "driver 25.5.1 is on the host, release 0.23.0 needs 26.0.RC1 or newer",
    ),
    "firmware": (
        SETTLED,
        BOX,
        BAD_FIRMWARE,
        REQUEST,
        "driver 26.0.rc1 and firmware 9.0.0.0.205 do not fit: driver 26.0.rc1 takes firmware [7.0.0,8.9.9]",
    ),
    "firmware of no release": (
        SETTLED,
        BOX,
        BAD_FIRMWARE,
        replace(INSTALL, row=replace(ROW, firmware="")),
        "release 0.23.0 names no firmware that fits: set cann_firmware_version",
    ),
    "asked": (
        SETTLED,
        BOX,
        ON_ROW,
        replace(REQUEST, asked=True, policy="halt", row=replace(ROW, driver="26.1.1")),
        "driver 26.0.rc1 is on the host, release 0.23.0 needs 26.1.1 or newer",
    ),
    "cann": (
        SETTLED,
        BOX,
        replace(ON_ROW, cann={"toolkit": "8.5.1"}),
        replace(REQUEST, toolkit=True),
        "CANN on the host is toolkit 8.5.1, release 0.23.0 belongs to 9.1.0, and cann_policy is retain",
    ),
    "cann without a source": (
        SETTLED,
        BOX,
        ON_ROW,
        replace(REQUEST, toolkit=True, source="none"),
        "CANN 9.1.0 lacks toolkit, ops, nnal, and cann_source is none",
    ),
    "group": (
        HOST,
        BOX,
        replace(NOTHING, group="users"),
        REQUEST,
        "user HwHiAiUser is in group users, Huawei's installer expects HwHiAiUser; correct it with 'usermod --gid",
    ),
    "packages over a file": (BY_RUN, BOX, OLDER, INSTALL, "the driver on the host came from a .run file"),
    "a file over packages": (
        SETTLED,
        BOX,
        OLDER,
        replace(INSTALL, files=RUNS),
        "ascend910b-driver, ascend910b-firmware came as packages, which .run files do not replace",
    ),
    "format packages": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, format="packages", files=RUNS),
        "cann_format is packages and",
    ),
    "format run": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, format="run"),
        "cann_format is run and cann_run_files is empty",
    ),
    "no file": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, files=files("910b", "x86-64", "driver")),
        "cann_run_files has no firmware; this host needs Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run",
    ),
    "secure boot": (
        replace(HOST, secure_boot=True, signing_key_enrolled=False),
        BOX,
        NOTHING,
        REQUEST,
        "Secure Boot is on and the key",
    ),
}


@pytest.mark.parametrize("name", HALTS)
def test_what_halts(name):
    host, hardware, installed, requested, words = HALTS[name]
    found = plan_driver(host, hardware, installed, requested)
    assert found.halt is not None
    assert words in found.halt


BAD_FILES = {
    "no address": ({"url": "", "sha256": SHA}, "a file has the address ''; expected http(s):// or file://"),
    "ftp": (entry("x.run", "ftp://a/{}"), "expected http(s):// or file://"),
    "no sum": ({"url": "https://a/Ascend-cann-nnal_9.1.0_linux-aarch64.run"}, "no file is run that was not verified"),
    "short sum": ({"url": "https://a/x.run", "sha256": "abc"}, "sha256 of x.run is 'abc', expected 64 hexadecimal"),
    "name": (
        entry("driver.run"),
        "'driver.run' is not a name of one of Huawei's files; expected forms like Ascend-hdk-910b",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_not_taken(name):
    given, words = BAD_FILES[name]
    with pytest.raises(StackError) as caught:
        read_files([given])
    assert words in str(caught.value)


# Of each: the names that the site offers for a 910B on x86_64, and words of the refusal.
UNFIT = {
    "chip": (["Ascend-hdk-310p-npu-driver_26.0.rc1_linux-x86-64.run"], "is for chip 310p, the host has 910b"),
    "other form": (["Atlas-A3-hdk-npu-driver_26.0.RC1_linux-aarch64.run"], "is for chip A3, the host has 910b"),
    "architecture": (["Ascend-hdk-910b-npu-driver_26.0.rc1_linux-aarch64.run"], "is for aarch64, the host is x86_64"),
    "version": (
        ["Ascend-hdk-910b-npu-driver_25.5.1_linux-x86_64.run"],
        "add Ascend-hdk-910b-npu-driver_26.0.RC1_linux-x86-64.run (Ascend-hdk-910b-npu-driver_25.5.1_linux-"
        "x86_64.run is for version 25.5.1, needed is 26.0.RC1",
    ),
    "several": (
        [f"Ascend-hdk-910b-npu-driver_26.0.rc1_linux-{arch}.run" for arch in ("x86-64", "x86_64")],
        "cann_run_files has several files for driver",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_files_that_do_not_fit_the_host(name):
    names, words = UNFIT[name]
    found = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, files=read_files([entry(file) for file in names])))
    assert words in found.halt


def test_a_fleet_names_the_files_of_all_its_hosts():
    offered = [*files("910b", "aarch64"), *files("910b", "x86-64", "driver"), *files("310p", "x86-64")]
    found = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, files=tuple(offered)))
    assert [one.name for one in found.installers] == [
        "Ascend-hdk-910b-npu-driver_26.0.rc1_linux-x86-64.run",
        "Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run",
    ]


def test_nodes_that_the_driver_has_to_have():
    nodes = MACHINES["atlas_800_a3"][0].nodes
    assert nodes[0] == "/dev/davinci0"
    assert "/dev/davinci15" in nodes
    assert nodes[1:4] == ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
    assert "/dev/devmm_svm" not in MACHINES["atlas_950"][0].nodes
