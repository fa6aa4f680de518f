# SPDX-License-Identifier: GPL-3.0-or-later
"""The module that reads a host's driver, on trees of files and tools that replay recorded answers."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack import host as _stack_read
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

from tests.fakes.nvidia import (
    DPKG,
    KERNEL,
    MODINFO,
    ROCKY,
    VERSION,
    add_switches,
    h200_host,
    nvidia_smi,
    tool,
    write,
)
from tests.fakes.wheelhouse import run_module

NEXT = "6.8.0-100-generic"


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return h200_host(tmp_path)


def state(host, **options):
    roots = {"root": str(host), "sysfs_root": str(host / "sys"), "proc_root": str(host / "proc")}
    result = run_module(
        "driver_state", stack="cuda", faults=faults_of_host("cuda"), **roots, minimum_driver="580.65.06", **options
    )
    assert not result.get("failed"), result
    assert result["changed"] is False
    return result


def whats(result):
    return [finding["what"] for finding in result["findings"]]


def test_the_recorded_h200_is_whole(host):
    result = state(host)
    assert result["findings"] == []
    assert result["chips"] == ["0000:00:06.0"]
    assert result["driver"] == {"version": VERSION, "flavour": "open"}
    (gpu,) = result["gpus"]
    assert (gpu["name"], gpu["memory"], gpu["mig"]) == ("NVIDIA H200", "143771 MiB", "Disabled")
    assert result["fabric"] == ""
    found = result["host"]
    assert (found["distribution"], found["version"], found["codename"]) == ("ubuntu", "24.04", "noble")
    assert (found["kernel"], found["next_kernel"], found["secure_boot"]) == (KERNEL, KERNEL, False)
    assert found["packages"] == {
        "nvidia-open": f"{VERSION}-0ubuntu1",
        "nvidia-dkms-580-open": f"{VERSION}-0ubuntu1",
        f"linux-image-{KERNEL}": "6.8.0-50.51",
        f"linux-headers-{KERNEL}": "6.8.0-50.51",
        "dkms": "3.0.11-1",
    }
    assert found["modules"] == {"nvidia": {"version": VERSION, "srcversion": "AB12CD"}}
    assert found["dkms"] == [{"module": "nvidia", "version": VERSION, "kernel": KERNEL, "state": "installed"}]
    assert found["holds"] == ["nvidia-dkms-580-open", "nvidia-open"]
    assert result["services"] == {"nvidia-persistenced": "active", "nvidia-fabricmanager": "inactive"}
    assert result["ansible_facts"] == {"accelerator_driver_version": VERSION}


def test_contents_and_the_boots_identity(host):
    write(host / "etc/modprobe.d/x.conf", "blacklist nouveau\n")
    write(host / "proc/sys/kernel/random/boot_id", "0c1d\n")
    result = state(host, contents_of=["/etc/modprobe.d/x.conf", "/etc/modprobe.d/y.conf"])
    assert result["contents"] == {"/etc/modprobe.d/x.conf": "blacklist nouveau\n", "/etc/modprobe.d/y.conf": None}
    assert result["boot"] == "0c1d"


def test_check_mode_reads_the_same(host):
    assert state(host, _ansible_check_mode=True)["findings"] == []


def test_an_upgraded_kernel_that_has_no_module_yet(host):
    write(host / f"boot/vmlinuz-{NEXT}", "")
    write(host / "boot/vmlinuz-0-rescue-1", "")
    result = state(host)
    assert result["host"]["next_kernel"] == NEXT
    assert whats(result) == [f"the next boot has no driver: there is no module for kernel {NEXT}"]
    assert result["findings"][0]["action"].startswith(f"install linux-headers-{NEXT}, then run")


@pytest.mark.parametrize(
    ("code", "out", "expected"),
    [
        (
            18,
            "Failed to initialize NVML: Driver/library version mismatch\n",
            "the tools and the loaded driver have different versions",
        ),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "nvidia-smi cannot"),
        (6, "No devices were found\n", "the driver is loaded, but bound to no chip"),
    ],
)
def test_an_nvidia_smi_that_fails(host, code, out, expected):
    nvidia_smi(host / "bin", query=out, report=out, code=code)
    result = state(host)
    assert len(result["findings"]) == 1
    assert whats(result)[0].startswith(expected)
    assert result["gpus"] == []


def test_an_nvidia_smi_that_is_not_there(host):
    (host / "bin/nvidia-smi").unlink()
    assert whats(state(host)) == ["nvidia-smi is not installed"]


def test_a_tool_that_hangs_is_given_up(tmp_path, monkeypatch):
    write(tmp_path / "nvidia-smi", "#!/bin/sh\nexec /bin/sleep 30\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_stack_read, "PATIENCE", 0.2)
    assert _stack_read.run_command(["nvidia-smi", "-q"]) == CommandResult(124)


def test_a_tool_that_cannot_be_run(tmp_path, monkeypatch):
    write(tmp_path / "nvidia-smi", "#!/nowhere\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _stack_read.run_command(["nvidia-smi"]).rc == 126


def test_switches_need_a_fabric_manager(host):
    add_switches(host)
    result = state(host)
    assert result["fabric"] == "nvswitch"
    assert len(result["chips"]) == 1
    assert whats(result) == ["nvidia-fabricmanager is inactive"]
    assert state(host, fabric="none")["findings"] == []


def test_ports_that_manage_nvlink_5(host):
    card = host / "sys/bus/pci/devices/0000:90:00.0"
    for name, text in {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700"}.items():
        write(card / name, text)
    (card / "vpd").write_bytes(b"\x82\x10\x00ConnectX-7\x90\x20\x00V3\x06SW_MNG\xff")
    assert state(host)["fabric"] == "nvlink5"
    (card / "vpd").write_bytes(b"\x82\x10\x00ConnectX-7\x90\x20\x00V3\x06OTHER\xff")
    assert state(host)["fabric"] == ""
    write(host / "sys/class/infiniband/mlx5_0/device/vpd", "SW_MNG")
    assert state(host)["fabric"] == "nvlink5"


def test_the_kernels_log_is_read_from_where_it_can_be(host):
    xid = "NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus.\n"
    tool(host / "bin", "journalctl", ("*", 1, "", "No journal files were found.\n"))
    assert state(host)["findings"] == []
    forged = "vx[812]: segfault at 0 ip 0 sp 0 error 4 in " + xid.strip()
    write(host / "dev/kmsg", f"6,1,1000,-;nouveau: no\n6,2,2000,-;{forged}[1000+1000]\n30,3,3000,-;{xid}")
    assert state(host)["findings"] == []
    write(host / "dev/kmsg", f"6,1,1000,-;nouveau: no\n4,2,2000,-;{xid}")
    assert whats(state(host)) == ["Xid 79 since the last boot: The chip has fallen off the bus"]


def test_a_file_with_a_line_break_in_its_name_is_no_record_of_the_journal(host):
    xid = "NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus."
    crash = f"vx[812]: segfault at 0 ip 0 sp 0 error 4 in a\n{xid}\n"

    def journal(*messages, facility="0"):
        entries = [{"MESSAGE": message, "SYSLOG_FACILITY": facility} for message in messages]
        tool(host / "bin", "journalctl", ("--dmesg*", 0, "".join(json.dumps(entry) + "\n" for entry in entries), ""))

    journal("Linux version 6.8.0", crash, list(crash.encode()))
    assert state(host)["findings"] == []
    journal(xid, facility="3")
    assert state(host)["findings"] == []
    journal(xid)
    assert whats(state(host)) == ["Xid 79 since the last boot: The chip has fallen off the bus"]


def test_debians_name_of_the_module(host):
    built = MODINFO.format(kernel=KERNEL, version=VERSION)
    tool(host / "bin", "modinfo", (f"'-k {KERNEL} nvidia-current'", 0, built, ""), ("*", 1, "", "not found\n"))
    assert state(host)["findings"] == []


def test_packages_that_are_not_held(host):
    tool(host / "bin", "apt-mark", ("showhold", 0, "nvidia-open\n", ""))
    assert [finding["where"] for finding in state(host)["findings"]] == ["nvidia-dkms-580-open"]
    assert state(host, hold=False)["findings"] == []


@pytest.mark.parametrize(
    ("value", "answer", "expected"),
    [
        (b"\x06\x00\x00\x00\x00", "", (False, None)),
        (b"\x06\x00\x00\x00\x01", "/var/lib/dkms/mok.pub is already enrolled\n", (True, True)),
        (b"\x06\x00\x00\x00\x01", "/var/lib/dkms/mok.pub is not enrolled\n", (True, False)),
        (None, "", (None, None)),
    ],
)
def test_secure_boot(host, value, answer, expected):
    variables = host / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    if value is not None:
        (variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(value)
    write(host / "var/lib/dkms/mok.pub", "")
    tool(host / "bin", "mokutil", ("--test-key*", 0, answer, ""))
    found = state(host)["host"]
    assert (found["secure_boot"], found["signing_key_enrolled"]) == expected


def test_a_key_that_nobody_can_ask_about(host):
    variables = host / "sys/firmware/efi/efivars"
    write(variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\x00\x00\x00\x01")
    write(host / "var/lib/dkms/mok.pub", "")
    assert state(host)["host"]["signing_key_enrolled"] is None


def test_what_the_repositories_offer(host):
    madison = (
        " nvidia-dkms-580-open | 580.159.04-0ubuntu1 | https://example.com Packages\n"
        " nvidia-dkms-580-open | 580.95.05-0ubuntu1 | https://example.com Packages\n"
    )
    tool(host / "bin", "apt-cache", ("'madison nvidia-dkms-580-open'", 0, madison, ""), ("*", 0, "", ""))
    result = state(host, offered_of=["nvidia-dkms-580-open", "nothing"])
    assert result["offered"] == {
        "nvidia-dkms-580-open": ["580.159.04-0ubuntu1", "580.95.05-0ubuntu1"],
        "nothing": [],
    }


def test_a_clone_of_rhel(host):
    kernel = "5.14.0-570.12.1.el9_6.x86_64"
    write(host / "etc/os-release", ROCKY)
    write(host / "proc/sys/kernel/osrelease", f"{kernel}\n")
    rpm = (
        f"kmod-nvidia-open-dkms\t3:{VERSION}-1.el9\t{VERSION}-1.el9.noarch\n"
        "kernel-devel\t5.14.0-570.12.1.el9_6\t5.14.0-570.12.1.el9_6.x86_64\n"
        "kernel-devel\t5.14.0-503.el9\t5.14.0-503.el9.x86_64\n"
        "bash\t5.1.8-9.el9\t5.1.8-9.el9.x86_64\n"
    )
    locks = f"Last metadata expiration check: 0:00:01 ago\nkmod-nvidia-open-dkms-3:{VERSION}-1.el9.*\n"
    tool(host / "bin", "rpm", ("-qa*", 0, rpm, ""))
    tool(
        host / "bin",
        "dnf",
        ("'-q versionlock list'", 0, locks, ""),
        ("'-q repoquery'*", 0, "580.159.04\n580.95.05\n", ""),
    )
    tool(host / "bin", "dkms", ("status", 0, f"nvidia-open/{VERSION}, {kernel}, x86_64: installed\n", ""))
    tool(host / "bin", "modinfo", ("*", 0, MODINFO.format(kernel=kernel, version=VERSION), ""))
    tool(host / "bin", "grubby", ("--default-kernel", 0, f"/boot/vmlinuz-{kernel}\n", ""))
    result = state(host, offered_of=["kmod-nvidia-open-dkms"])
    assert result["findings"] == []
    assert result["host"]["packages"] == {
        "kmod-nvidia-open-dkms": f"3:{VERSION}-1.el9",
        f"kernel-devel-{kernel}": "5.14.0-570.12.1.el9_6",
        "kernel-devel-5.14.0-503.el9.x86_64": "5.14.0-503.el9",
    }
    assert result["host"]["next_kernel"] == kernel
    assert "kmod-nvidia-open-dkms" in result["host"]["holds"]
    assert result["offered"] == {"kmod-nvidia-open-dkms": ["580.159.04", "580.95.05"]}


def test_a_fresh_host_has_nothing_and_says_so(host):
    (host / "bin/nvidia-smi").unlink()
    for path in ("sys/module/nvidia/version", "sys/module/nvidia/srcversion", "proc/driver/nvidia/version"):
        (host / path).unlink()
    (host / "sys/module/nvidia").rmdir()
    kernel_only = "".join(line for line in DPKG.splitlines(True) if "linux-image" in line)
    tool(host / "bin", "dpkg-query", ("--show*", 0, kernel_only, ""))
    tool(host / "bin", "modinfo", ("*", 1, "", "not found\n"))
    tool(host / "bin", "systemctl", ("*", 4, "inactive\n", ""))
    (host / "bin/dkms").unlink()
    result = state(host)
    assert result["driver"] == {"version": "", "flavour": ""}
    assert whats(result) == [
        f"no driver is loaded: there is no module for kernel {KERNEL}",
        "nvidia-smi is not installed",
        "nvidia-persistenced is inactive",
    ]


def test_a_driver_that_only_procfs_shows(host):
    for name in ("version", "srcversion"):
        (host / "sys/module/nvidia" / name).unlink()
    (host / "sys/module/nvidia").rmdir()
    assert state(host)["host"]["modules"] == {"nvidia": {"version": VERSION, "srcversion": None}}


def test_a_build_that_failed_shows_the_end_of_its_log(host):
    tool(host / "bin", "modinfo", ("*", 1, "", "not found\n"))
    lines = "\n".join(f"line {n}" for n in range(20))
    write(host / f"var/lib/dkms/nvidia/{VERSION}/build/make.log", f"{lines}\nerror: implicit declaration\n")
    (finding,) = state(host)["findings"]
    assert finding["action"].endswith("line 18; line 19; error: implicit declaration")
    assert "line 12" not in finding["action"]


def test_what_is_no_sysfs(host):
    result = run_module(
        "driver_state", stack="cuda", sysfs_root=str(host / "bin"), root=str(host), proc_root=str(host / "proc")
    )
    assert result["failed"]
    assert "no sysfs there" in result["msg"]


@pytest.mark.parametrize(
    ("lines", "findings"),
    [
        # What a program causes, what the driver repairs, what a new start of an instance ends.
        ([f"{code}, pid=7, name=python3" for code in (11, 13, 31, 32, 43, 45, 63, 68, 69, 80, 94, 106, 162)], []),
        (["154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"], []),
        (["119, pid=7"], ["Xid 119 since the last boot: GSP RPC Timeout"]),
        (["119, pid=7", "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"], []),
        (["64, pid=7"], ["Xid 64 since the last boot: A bad row of memory could not be remapped"]),
    ],
)
def test_the_catalogue_of_faults_decides_what_a_record_means(host, lines, findings):
    records = [f"NVRM: Xid (PCI:0000:00:06): {line}" for line in lines]
    write(host / "dev/kmsg", "".join(f"4,{number},1000,-;{text}\n" for number, text in enumerate(records)))
    assert whats(state(host)) == findings


def test_a_fault_of_a_switch_is_a_finding(host):
    write(
        host / "dev/kmsg", "4,1,1000,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 22003, Fatal, Link 27 Minion Halt\n"
    )
    assert whats(state(host)) == ["SXid 22003 since the last boot: Minion Halt"]


def test_an_option_of_another_stack_is_refused(host):
    result = run_module("driver_state", stack="cuda", root=str(host), users=["vllm"])
    assert result["failed"] and result["msg"] == (
        "users: found ['vllm'] with stack cuda; it is an option of stack rocm"
    )
