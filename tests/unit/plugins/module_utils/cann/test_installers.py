# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's names of files, as its pages list them, and what runs them."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.installers import (
    CANN_LOG,
    LOG,
    USER,
    choose_file,
    installer_of,
    read_files,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import StackError

SHA = "ab" * 32
NAMES = {
    "Ascend-hdk-910b-npu-driver_25.0.rc1.1_linux-aarch64.run": ("driver", "910b", "25.0.rc1.1", "aarch64"),
    "Ascend-hdk-910b-npu-driver_25.2.0_linux-x86-64.run": ("driver", "910b", "25.2.0", "x86_64"),
    "Atlas-A3-hdk-npu-driver_25.2.0_linux_x86_64.run": ("driver", "A3", "25.2.0", "x86_64"),
    "Ascend-hdk-910b-npu-firmware_7.7.0.6.236.run": ("firmware", "910b", "7.7.0.6.236", ""),
    "Ascend-hdk-310p-npu-firmware_7.7.0.6.236_linux-aarch64.run": ("firmware", "310p", "7.7.0.6.236", "aarch64"),
    "Ascend-cann-toolkit_8.3.RC1_linux-aarch64.run": ("toolkit", "", "8.3.RC1", "aarch64"),
    "Ascend-cann-910b-ops_9.2.0-beta.2_linux-x86_64.run": ("ops", "910b", "9.2.0-beta.2", "x86_64"),
    "Atlas-A3-cann-ops_9.0.0_linux-aarch64.run": ("ops", "A3", "9.0.0", "aarch64"),
    "Ascend-cann-nnal_9.0.0_linux-x86_64.run": ("nnal", "", "9.0.0", "x86_64"),
}


def files(*names):
    return read_files([{"url": f"https://site.example/{name}", "sha256": SHA.upper()} for name in names])


def test_names_say_component_chip_version_and_architecture():
    for file, expected in zip(files(*NAMES), NAMES.values()):
        assert (file.component, file.chip, file.version, file.arch) == expected
        assert file.sha256 == SHA and file.path == f"/var/lib/baremetal-cann/{file.name}"


def test_a_file_may_have_another_name_at_the_site():
    name = next(iter(NAMES))
    (file,) = read_files([{"url": "file:///srv/x.run", "name": name, "sha256": SHA}])
    assert (file.name, file.url) == (name, "file:///srv/x.run")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"url": "ftp://site/x.run", "sha256": SHA}, "x.run has the address 'ftp://site/x.run'; expected http"),
        ({"sha256": SHA}, "a file has the address ''"),
        ({"url": "https://site/x.run", "sha256": "ab"}, "sha256 of x.run is 'ab', expected 64 hexadecimal digits"),
        ({"url": "https://site/x.run"}, "no file is run that was not verified"),
        ({"url": "https://site/x.run", "sha256": SHA}, "'x.run' is not a name of one of Huawei's files; expected"),
        ({"url": "https://site/Ascend-hdk-910b-npu-driver_25.2.0_linux-riscv64.run", "sha256": SHA}, "is not a name"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_used_is_refused(entry, reason):
    with pytest.raises(StackError, match=r"\Acann_run_files: ") as caught:
        read_files([entry])
    assert reason in str(caught.value)


def test_a_host_takes_the_file_of_its_chip_version_and_architecture():
    offered = files(*NAMES)
    assert choose_file(offered, "driver", "a3", "", "x86_64").name.startswith("Atlas-A3-hdk-npu-driver")
    assert choose_file(offered, "driver", "910b", "25.0.RC1.1", "aarch64").version == "25.0.rc1.1"
    assert choose_file(offered, "firmware", "910b", "", "x86_64").arch == ""
    assert choose_file(offered, "ops", "910b", "9.2.0_beta.2", "x86_64").version == "9.2.0-beta.2"


DRIVER, TOOLKIT = "Ascend-hdk-910b-npu-driver_25.2.0_linux-x86-64.run", "Ascend-cann-toolkit_8.3.RC1_linux-aarch64.run"
NNAL, OTHER = "Ascend-cann-nnal_9.0.0_linux-x86_64.run", "Ascend-cann-nnal_9.1.0_linux-x86_64.run"


@pytest.mark.parametrize(
    ("names", "wanted", "reason"),
    [
        ([], ("driver", "910b", "25.2.0", "x86_64"), f"has no driver; this host needs {DRIVER}"),
        (NAMES, ("toolkit", "910b", "", "x86_64"), f"{TOOLKIT} is for aarch64, the host is x86_64"),
        (NAMES, ("nnal", "910b", "8.0.0", "x86_64"), "is for version 9.0.0, needed is 8.0.0"),
        (NAMES, ("ops", "310p", "", "aarch64"), "is for chip A3, the host has 310p"),
        (NAMES, ("driver", "910", "", "x86_64"), "is for chip 910b, the host has 910"),
        ([*NAMES, OTHER], ("nnal", "910b", "", "x86_64"), f"several files for nnal: {NNAL} and {OTHER}"),
    ],
)  # fmt: skip
def test_a_host_without_a_file_is_told_why_and_what_to_add(names, wanted, reason):
    with pytest.raises(StackError) as caught:
        choose_file(files(*names), *wanted)
    assert reason in str(caught.value)


def command(name, upgrade=False, user=USER, group=USER):
    (file,) = files(name)
    return installer_of(file, upgrade, user, group)


def test_files_are_run_unattended_and_for_the_user_of_the_site():
    driver, _x86, _a3, firmware, _arm, toolkit, ops, *_more = NAMES
    place = "/var/lib/baremetal-cann"
    assert command(driver).argv == (f"{place}/{driver}", "--full", "--install-for-all", "--quiet")
    assert command(driver, user="npu", group="hpc").argv[3:] == (
        "--install-username=npu", "--install-usergroup=hpc", "--quiet",
    )  # fmt: skip
    assert command(driver, upgrade=True, user="npu").argv == (f"{place}/{driver}", "--upgrade", "--quiet")
    assert command(firmware, user="npu").argv == (f"{place}/{firmware}", "--full", "--quiet")
    # CANN's parts are installed beside the former ones; its operators find the toolkit by its environment.
    assert command(toolkit, upgrade=True).argv == (f"{place}/{toolkit}", "--full", "--quiet")
    shell = command(ops, upgrade=True).argv
    assert shell[:2] == ("/bin/bash", "-c") and "ascend-toolkit/set_env.sh" in shell[2]
    assert shell[3:] == (f"{place}/{ops}", "--install", "--quiet")


def test_a_failure_is_explained_by_the_log_of_its_component():
    names = list(NAMES)
    assert (command(names[0]).log, command(names[5]).log) == (LOG, CANN_LOG)
    assert command(names[0]).why == "the driver, 25.0.rc1.1"
    assert command(names[0], upgrade=True).why == "another driver, 25.0.rc1.1"
