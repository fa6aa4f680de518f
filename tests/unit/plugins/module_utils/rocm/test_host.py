# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read on a host, by the module that does, on trees of files and tools that replay answers."""

from __future__ import annotations

import json
import os
import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

from tests.fakes.nvidia import add_process, tool, write
from tests.fakes.rocm_tree import (
    CHIPS,
    KERNEL,
    KERNEL_PACKAGES,
    MODINFO,
    PACKAGE,
    VERSION,
    dpkg,
    mi300x_host,
)
from tests.fakes.wheelhouse import run_module

NEXT = "6.8.0-100-generic"


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return mi300x_host(tmp_path)


def state(host, **options):
    roots = {"root": str(host), "sysfs_root": str(host / "sys"), "proc_root": str(host / "proc")}
    result = run_module("driver_state", stack="rocm", **roots, minimum_driver="6.14.14", **options)
    assert not result.get("failed"), result
    assert result["changed"] is False
    return result


def whats(result):
    return [finding["what"] for finding in result["findings"]]


def test_a_host_that_is_whole(host):
    result = state(host)
    assert result["findings"] == []
    assert result["chips"] == list(CHIPS)
    assert [gpu["address"] for gpu in result["gpus"]] == list(CHIPS)
    assert result["listed_by"] == "amd-smi"
    assert result["driver"] == {"version": VERSION, "loaded": True}
    assert result["ansible_facts"] == {"accelerator_driver_version": VERSION, "accelerator_mec_firmware": 177}
    found = result["host"]
    assert found["packages"]["amdgpu-dkms"] == f"1:{PACKAGE}"
    assert "bash" not in found["packages"]
    assert found["modules"] == {"amdgpu": {"version": VERSION, "srcversion": "AB12CD"}}
    assert found["dkms"][0]["module"] == "amdgpu"
    assert found["groups"] == {"render": ["vllm"], "video": ["vllm", "mia"]}
    shown = result["shown"]
    assert (shown["driven"], shown["disk"], shown["is_stale"]) == (list(CHIPS), VERSION, False)
    assert (shown["has_grub"], shown["grub"], shown["numa_balancing"]) == (True, None, "1")
    assert (shown["blacklists"], shown["sources"], shown["rocm"]) == ([], {}, "")


RECORDS = "{stamp}  1       FATAL                fatal-1.cper      30\n"
BUS = json.dumps([{"gpu": n, "bus": {"bdf": address}} for n, address in enumerate(CHIPS)])


@pytest.mark.parametrize("device", [False, True])
def test_error_records_are_judged_until_the_driver_has_reset_the_chip(host, device):
    booted = time.time() - time.monotonic()
    stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(booted + 100))
    gpus = json.dumps([{"gpu": n, "bus": {"bdf": address}, "asic": {}} for n, address in enumerate(CHIPS)])
    tool(
        host / "bin", "amd-smi", ("'static --asic --bus --driver --json'", 0, gpus, ""),
        ("'static --bus --json'", 0, BUS, ""),
        ("'ras --cper --severity fatal'*", 0, RECORDS.format(stamp=stamp), ""), ("ras*", 0, "", ""),
    )  # fmt: skip
    faults = faults_of_host("rocm")
    found = state(host, faults=faults)["findings"]
    assert [(each["what"], each["where"]) for each in found] == [
        ("AFID 30 since the last boot: Other fatal error within the chip", f"chip {CHIPS[1]}")
    ]
    for at, left in ((99, 1), (103, 0)):
        message = f"amdgpu {CHIPS[1]}: amdgpu: GPU reset(1) succeeded!"
        if device:
            write(host / "dev/kmsg", f"6,1,{at}000000,-;{message}\n")
        else:
            line = json.dumps({"MESSAGE": message, "_SOURCE_MONOTONIC_TIMESTAMP": f"{at}000000"})
            tool(host / "bin", "journalctl", ("--dmesg*", 0, f"{line}\n", ""))
        assert len(state(host, faults=faults)["findings"]) == left


def test_check_mode_reads_the_same(host):
    assert state(host, _ansible_check_mode=True)["findings"] == []


def test_users_that_are_asked_for(host):
    assert state(host, users=["mia", "eve"])["host"]["users"] == {"mia": "mia"}


def test_chips_that_are_asked_for(host):
    assert whats(state(host, chips=[CHIPS[0], "0000:99:00.0"])) == [
        "amd-smi lists 1 of 2 chips on PCI; the driver is not bound to it"
    ]


def test_a_chip_that_another_driver_has(host):
    link = host / "sys/bus/pci/devices" / CHIPS[1] / "driver"
    link.unlink()
    link.symlink_to("../../drivers/vfio-pci")
    for name in ("class/kfd/kfd/topology/nodes/2/properties",):
        (host / "sys" / name).unlink()
    tool(host / "bin", "amd-smi", ("static*", 0, json.dumps([{"bus": {"bdf": CHIPS[0]}}]), ""))
    assert whats(state(host)) == ["amd-smi lists 1 of 2 chips on PCI; the driver vfio-pci is bound to it"]


@pytest.mark.parametrize("directory", ["/opt/rocm/bin", "/opt/rocm/core/bin"])
def test_tools_that_are_not_in_the_path(host, directory):
    from ansible_collections.baremetal.inference.plugins.module_utils.rocm.host import inspect_host
    from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult
    from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.host import run_command

    (host / "bin/amd-smi").unlink()

    def run(argv):
        return CommandResult(0, "[]") if argv[0] == f"{directory}/amd-smi" else run_command(argv)

    assert inspect_host(str(host), str(host / "sys"), str(host / "proc"), run=run).amd_smi == CommandResult(0, "[]")


def test_no_tool_at_all(host):
    (host / "bin/amd-smi").unlink()
    assert state(host)["findings"] == []
    assert state(host)["listed_by"] == "the kernel (KFD)"
    assert whats(state(host, userspace=True)) == ["neither amd-smi nor rocm-smi is installed"]


def test_a_module_of_another_build_is_loaded(host):
    write(host / "sys/module/amdgpu/srcversion", "OLD\n")
    result = state(host)
    assert result["shown"]["is_stale"] is True
    assert "is another build" in whats(result)[0]


def test_the_kernels_own_driver(host):
    (host / "sys/module/amdgpu/version").unlink()
    dpkg(host, *KERNEL_PACKAGES)
    built = "".join(
        line for line in MODINFO.format(kernel=KERNEL, version="x").splitlines(True) if line[:7] != "version"
    )
    tool(host / "bin", "modinfo", (f"'-k {KERNEL} amdgpu'", 0, built, ""))
    result = state(host)
    assert result["driver"] == {"version": "", "loaded": True}
    assert (result["shown"]["disk"], result["shown"]["is_stale"]) == ("", False)
    assert "accelerator_driver_version" not in result["ansible_facts"]
    assert [what[:35] for what in whats(result)] == ["the kernel's own amdgpu is loaded, "]


def test_an_upgraded_kernel_that_has_no_module_yet(host):
    write(host / f"boot/vmlinuz-{NEXT}", "")
    assert whats(state(host)) == [f"the next boot has no driver: there is no module for kernel {NEXT}"]


def test_a_build_that_failed(host):
    write(host / f"boot/vmlinuz-{NEXT}", "")
    write(host / "var/lib/dkms/amdgpu/6.16.13-1/build/make.log", "CC kcl.o\nerror: migrate_enable\n")
    assert "the last build ended with: CC kcl.o; error: migrate_enable" in state(host)["findings"][0]["action"]


def test_what_keeps_the_driver_out(host):
    write(host / "etc/modprobe.d/cloud.conf", "# image\nblacklist amdgpu\n")
    write(host / "usr/lib/modprobe.d/other.conf", "install amdgpu /bin/false\n")
    # The first is hidden by the second.
    write(host / "lib/modprobe.d/hidden.conf", "blacklist amdgpu\n")
    write(host / "etc/modprobe.d/hidden.conf", "")
    write(host / "proc/cmdline", "ro modprobe.blacklist=nouveau,amdgpu quiet\n")
    result = state(host)
    assert [(entry["path"], entry["line"], entry["text"]) for entry in result["shown"]["blacklists"]] == [
        ("", 0, "modprobe.blacklist=nouveau,amdgpu"),
        ("/etc/modprobe.d/cloud.conf", 2, "blacklist amdgpu"),
        ("/usr/lib/modprobe.d/other.conf", 1, "install amdgpu /bin/false"),
    ]
    assert result["shown"]["blacklisting"]["/etc/modprobe.d/cloud.conf"] == "# image\nblacklist amdgpu\n"
    assert [finding["where"] for finding in result["findings"]] == [
        "the kernel's command line",
        "/etc/modprobe.d/cloud.conf line 2",
        "/usr/lib/modprobe.d/other.conf line 1",
    ]


def test_sources_that_name_amds_repositories(host):
    amds = "deb [signed-by=/etc/apt/keyrings/rocm.gpg] https://repo.radeon.com/amdgpu/30.30/ubuntu noble main\n"
    write(host / "etc/apt/sources.list.d/amdgpu.list", f"# deb-src {amds}{amds}")
    write(
        host / "etc/apt/sources.list.d/baremetal-amdgpu.sources", "URIs: https://repo.radeon.com/amdgpu/31.50/ubuntu\n"
    )
    write(host / "etc/apt/sources.list.d/old.list", f"# {amds}")
    write(host / "etc/apt/sources.list", "deb http://deb.debian.org/debian trixie main\n")
    assert state(host)["shown"]["sources"] == {"/etc/apt/sources.list.d/amdgpu.list": amds.rstrip("\n")}
    write(host / "etc/apt/sources.list.d/amdgpu.list", amds.replace("https://", "https://reader:hunter2@mirror/"))
    assert state(host)["shown"]["sources"] == {
        "/etc/apt/sources.list.d/amdgpu.list": amds.rstrip("\n").replace("https://", "https://********@mirror/")
    }


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"opt/rocm/.info/version": "7.2.3-81\n"}, "7.2.3"),
        ({"opt/rocm/core-10.0/.info/version": "10.0.0\n", "opt/rocm/core-7.14/.info/version": "7.14.0\n"}, "10.0.0"),
        ({"opt/rocm/core-10.0/.info/version": "10.0.0\n", "opt/rocm/core/.info/version": "7.14.0\n"}, "7.14.0"),
    ],
)
def test_rocm_in_user_space(host, files, version):
    for path, text in files.items():
        write(host / path, text)
    result = state(host)
    assert result["shown"]["rocm"] == version
    assert result["ansible_facts"]["accelerator_rocm_version"] == version


def test_device_nodes_of_another_group(host):
    write(host / "etc/group", f"render:x:{os.getgid() + 1}:\nwheel:x:{os.getgid()}:\nvideo:x:44:\n")
    found = state(host)["findings"]
    assert [finding["where"] for finding in found] == ["/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/kfd"]
    assert found[2]["what"].startswith("its group is wheel with mode 0660")


def test_programs_that_compute(host):
    add_process(host, 4242, "python3", "jupyter.service", "/dev/kfd")
    add_process(host, 4343, "gnome-shell", "user@1000.service", "/dev/dri/renderD128")
    assert [(one["pid"], one["unit"]) for one in state(host)["holders"]] == [(4242, "jupyter.service")]


def test_no_sysfs(tmp_path):
    result = run_module("driver_state", stack="rocm", root=str(tmp_path), sysfs_root=str(tmp_path / "nowhere"))
    assert result["failed"] is True
    assert "no sysfs there" in result["msg"]


def test_the_modes_of_a_chip_are_read_from_the_kernel(host):
    place = host / "sys/bus/pci/devices" / CHIPS[0]
    (place / "current_compute_partition").write_text("CPX\n")
    (place / "current_memory_partition").write_text("NPS4\n")
    assert whats(state(host)) == [
        "it is in CPX/NPS4, and plans are for whole chips: programs see other devices than planned"
    ]
    assert whats(state(host, partition="CPX/NPS4")) == []
