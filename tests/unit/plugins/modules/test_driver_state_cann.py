# SPDX-License-Identifier: GPL-3.0-or-later
"""The module that reads a host with Ascend chips, on trees of files and tools that replay answers."""

from __future__ import annotations

import pytest

from tests.fakes.ascend import FIRMWARE, KERNEL, MODINFO, MODULE, TOOLKIT_INFO, VERSION, atlas_host, npu_smi
from tests.fakes.nvidia import tool, write
from tests.fakes.wheelhouse import run_module

NEXT = "5.15.0-40-generic"


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return atlas_host(tmp_path)


def state(host, **options):
    roots = {"root": str(host), "sysfs_root": str(host / "sys"), "proc_root": str(host / "proc")}
    result = run_module("driver_state", stack="cann", **roots, minimum_driver="26.0.RC1", **options)
    assert not result.get("failed"), result
    assert result["changed"] is False
    return result


def whats(result):
    return [finding["what"] for finding in result["findings"]]


def test_a_whole_atlas_800_a2(host):
    result = state(host)
    assert result["findings"] == []
    assert len(result["chips"]) == 8
    assert result["npus"][7] == {
        "npu": "7",
        "chip": "0",
        "name": "910B4",
        "health": "OK",
        "address": result["chips"][7],
    }
    assert result["driver"] == {"version": VERSION}
    assert result["host"]["modules"] == {MODULE: {"version": None, "srcversion": "AB12CD"}}
    assert "ascend910b-driver" in result["host"]["packages"]
    assert "bash" not in result["host"]["packages"]
    installed = result["installed"]
    assert (installed["driver"], installed["firmware"], installed["complete"]) == (VERSION, FIRMWARE, True)
    assert (installed["running"], installed["running_firmware"]) == (VERSION, FIRMWARE)
    assert (installed["group"], installed["has_group"], installed["owner"]) == ("HwHiAiUser", True, "HwHiAiUser")
    assert result["ansible_facts"] == {
        "accelerator_driver_version": VERSION,
        "accelerator_firmware_version": FIRMWARE,
    }


def test_a_whole_atlas_800_a3(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    host = atlas_host(tmp_path, "19e5:d803", 16, dies=2)
    result = state(host)
    assert result["findings"] == []
    assert (len(result["chips"]), len(result["npus"])) == (16, 16)


@pytest.mark.parametrize(
    "place",
    [
        "usr/local/Ascend/cann/{arch}-linux/ascend_toolkit_install.info",
        "usr/local/Ascend/ascend-toolkit/latest/{arch}-linux/ascend_toolkit_install.info",
    ],
)
def test_cann_on_the_host(host, place):
    arch = state(host)["host"]["architecture"]
    write(host / place.format(arch=arch), TOOLKIT_INFO.format(version="9.1.0", arch=arch))
    result = state(host, toolkit=True, cann_version="9.1.0")
    assert result["ansible_facts"]["accelerator_cann_version"] == "9.1.0"
    assert whats(result) == ["CANN's ops is not installed", "CANN's nnal is not installed"]
    ops = place.format(arch=arch).replace("toolkit_install", "ops_install")
    write(host / ops, "package_name=Ascend-cann-ops\nversion=9.1.0\n")
    write(host / "usr/local/Ascend/nnal/atb/latest/version.info", "version=9.1.0\n")
    assert state(host, toolkit=True, cann_version="9.1.0")["findings"] == []


def test_what_a_chip_that_is_not_well_says(host):
    addresses = state(host)["chips"]
    npu_smi(host / "bin", addresses, ill=(2,))
    assert whats(state(host)) == ["health is Alarm, error 0x80E18402"]


def test_a_kernel_that_boots_next(host):
    write(host / f"boot/vmlinuz-{NEXT}", "")
    assert whats(state(host)) == [f"the next boot has no driver: there is no module for kernel {NEXT}"]


def test_another_name_of_the_module(host):
    (host / f"sys/module/{MODULE}").rename(host / "sys/module/drv_davinci_intf")
    built = MODINFO.format(kernel=KERNEL)
    tool(host / "bin", "modinfo", (f"'-k {KERNEL} drv_davinci_intf'", 0, built, ""), ("*", 1, "", ""))
    assert state(host)["findings"] == []


def test_a_tool_that_fails_is_asked_once(host):
    tool(host / "bin", "npu-smi", ("info", 255, "dcmi module initialize failed. ret is -8005\n", ""))
    result = state(host)
    assert [what[:33] for what in whats(result)] == ["npu-smi cannot reach the driver: "]
    assert result["npus"] == []
    # Nothing else says which driver runs, but its module is loaded.
    assert result["driver"] == {"version": VERSION}


def test_a_device_that_is_not_there(host):
    (host / "dev/davinci_manager").unlink()
    assert whats(state(host)) == ["1 of 9 device nodes are missing"]
    (host / "dev/hisi_hdc").unlink()
    nodes = ["/dev/davinci0", "/dev/hisi_hdc"]
    assert [finding["where"] for finding in state(host, nodes=nodes)["findings"]] == ["/dev/hisi_hdc"]


def test_another_user(host):
    assert whats(state(host, user="npu", group="npus")) == [
        "the user npu, whose group has access to the chips, does not exist",
        "the driver was installed for user HwHiAiUser, cann_user is npu",
    ]


def test_an_openeuler_host(host):
    kernel = "6.6.0-144.0.0.130.oe2403sp3.aarch64"
    write(host / "etc/os-release", 'NAME="openEuler"\nVERSION="24.03 (LTS-SP3)"\nID="openEuler"\nVERSION_ID="24.03"\n')
    write(host / "proc/sys/kernel/osrelease", f"{kernel}\n")
    (host / f"boot/vmlinuz-{KERNEL}").rename(host / f"boot/vmlinuz-{kernel}")
    rpm = (
        "Ascend910B-driver\t26.0.rc1-1\t26.0.rc1-1.aarch64\n"
        f"kernel-devel\t{kernel.rpartition('.')[0]}\t{kernel}\nbash\t5.2\t5.2-1.aarch64\n"
    )
    tool(host / "bin", "rpm", ("-qa*", 0, rpm, ""))
    tool(host / "bin", "dnf", ("'-q versionlock list'", 0, "Ascend910B-driver-26.0.rc1-1.*\n", ""), ("*", 0, "", ""))
    tool(host / "bin", "modinfo", (f"'-k {kernel} {MODULE}'", 0, MODINFO.format(kernel=kernel), ""), ("*", 1, "", ""))
    result = state(host)
    assert result["findings"] == []
    found = result["host"]
    assert (found["distribution"], found["version"], found["kernel"]) == ("openeuler", "24.03", kernel)
    assert found["packages"] == {
        "Ascend910B-driver": "26.0.rc1-1",
        f"kernel-devel-{kernel}": kernel.rpartition(".")[0],
    }
    assert found["holds"] == ["Ascend910B-driver"]


def test_a_fresh_host_has_nothing_and_says_so(host):
    for path in ("etc/ascend_install.info", "usr/local/Ascend/driver/version.info", f"sys/module/{MODULE}/srcversion"):
        (host / path).unlink()
    (host / f"sys/module/{MODULE}").rmdir()
    (host / "usr/local/Ascend/firmware/version.info").unlink()
    (host / "bin/npu-smi").unlink()
    (host / "bin/dkms").unlink()
    tool(host / "bin", "modinfo", ("*", 1, "", "not found\n"))
    tool(host / "bin", "dpkg-query", ("--show*", 0, f"ii \tlinux-image-{KERNEL}\t1\n", ""))
    result = state(host)
    assert result["driver"] == {"version": ""}
    assert result["ansible_facts"] == {}
    assert whats(result) == [
        "no driver of Huawei's is installed",
        f"no driver is loaded: there is no module for kernel {KERNEL}",
        "npu-smi is not installed",
    ]


def test_what_is_no_sysfs(host):
    result = run_module(
        "driver_state", stack="cann", sysfs_root=str(host / "bin"), root=str(host), proc_root=str(host / "proc")
    )
    assert result["failed"]
    assert "no sysfs there" in result["msg"]
