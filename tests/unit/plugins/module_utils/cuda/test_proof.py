# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded answers of a real H200 (tests/fixtures/h200), and every way in which a host can be less than whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.cuda import counters
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.answers import (
    parse_query,
    parse_report,
    short_address,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.chips import check_supported, flavour_of
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.counters import parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.proof import (
    CudaRecording,
    check_driver,
    is_foreign,
)
from ansible_collections.baremetal.inference.plugins.module_utils.health.signs import states_of
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    CommandResult,
    parse_dkms,
    parse_module_info,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.chips import Chip
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import FaultBook
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host, Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

FIXTURES = Path(__file__).parents[4] / "fixtures" / "h200"
QUERY = (FIXTURES / "nvidia-smi-query.csv").read_text()
REPORT = (FIXTURES / "nvidia-smi-q.xml").read_text()

KERNEL, NEXT = "6.8.0-50-generic", "6.8.0-52-generic"
CHIP = "0000:00:06.0"
# The form that modinfo has; of the H200 it was not recorded.
MODINFO = """\
filename:       /lib/modules/{kernel}/updates/dkms/nvidia.ko.zst
alias:          char-major-195-*
version:        {version}
license:        Dual MIT/GPL
srcversion:     {srcversion}
depends:        ecc
name:           nvidia
vermagic:       {built_for} SMP preempt mod_unload modversions
parm:           NVreg_ResmanDebugLevel:int
"""
# The form that the kernel's log has; of the H200 nothing was logged.
XID_79 = "NVRM: Xid (PCI:0000:00:06): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159\n"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)
LOST = (
    "Unable to determine the device handle for GPU 0000:00:06.0: GPU is lost.  Reboot the system to recover this GPU\n"
)


def module_text(kernel=KERNEL, version="580.159.04", srcversion="AB12CD", built_for=None):
    return MODINFO.format(kernel=kernel, version=version, srcversion=srcversion, built_for=built_for or kernel)


HOST = Host(
    "ubuntu",
    "24.04",
    "noble",
    "x86_64",
    KERNEL,
    KERNEL,
    secure_boot=False,
    packages={"nvidia-open": "580.159.04-0ubuntu1", "nvidia-dkms-580-open": "580.159.04-0ubuntu1"},
    modules={"nvidia": Module("580.159.04", "AB12CD")},
    dkms=(DkmsBuild("nvidia", "580.159.04", KERNEL, "installed"),),
    holds=("nvidia-open", "nvidia-dkms-580-open"),
)
WHOLE = CudaRecording(
    host=HOST,
    chips=(CHIP,),
    query=CommandResult(0, QUERY),
    report=CommandResult(0, REPORT),
    information={CHIP: "Model: NVIDIA H200\n"},
    disk={KERNEL: module_text()},
    services={"nvidia-persistenced": "active", "nvidia-fabricmanager": ""},
)


def found(recording=WHOLE, minimum="580.65.06", hold=True):
    findings = check_driver(recording, minimum, hold, FaultBook.from_document(faults_of_host("cuda")))
    return [(finding.what, finding.where, finding.action) for finding in findings]


def only(**changes):
    """Return the one finding of the whole recording with these changes."""
    findings = found(replace(WHOLE, **changes))
    assert len(findings) == 1, findings
    return findings[0]


def on_host(**changes):
    return replace(HOST, **changes)


def test_the_real_h200_lists_its_chip():
    (gpu,) = parse_query(QUERY)
    assert (gpu.name, gpu.address, gpu.memory) == ("NVIDIA H200", CHIP, "143771 MiB")
    assert (gpu.driver_version, gpu.mig, gpu.device_id) == ("580.159.04", "Disabled", "0x233510DE")
    assert gpu.broken == ()
    assert parse_query(QUERY.splitlines()[1]) == [gpu]


def test_the_real_h200_reports_nothing_wrong():
    (report,) = parse_report(REPORT)
    assert (report.address, report.mig, report.mig_pending, report.persistence) == (
        CHIP,
        "Disabled",
        "Disabled",
        "Enabled",
    )
    assert (report.fabric, report.fabric_status, report.recovery, report.remapping_failed) == ("", "", "", False)


def test_a_host_on_which_all_is_proven_has_no_findings():
    assert found() == []
    assert found(minimum="", hold=False) == []


def test_another_version_on_disk_than_in_the_kernel():
    what, where, action = only(disk={KERNEL: module_text(version="580.178.04")})
    assert what == "driver 580.159.04 is loaded, 580.178.04 is on disk"
    assert where == "module nvidia"
    assert action.startswith("reboot, or stop what uses the chips")


def test_another_build_of_the_same_version():
    what, _where, _action = only(disk={KERNEL: module_text(srcversion="99")})
    assert "(srcversion AB12CD) is another build of 580.159.04 than the one on disk (srcversion 99)" in what


def test_a_module_that_is_not_loaded():
    what, where, action = only(host=on_host(modules={}))
    assert (what, where) == ("driver 580.159.04 is on disk and not loaded", "module nvidia")
    assert action.startswith("run 'modprobe nvidia'")


def test_a_module_that_secure_boot_refuses():
    what, _where, action = only(host=on_host(modules={}, secure_boot=True, signing_key_enrolled=False))
    assert "Secure Boot is on and the key that DKMS signs with is not enrolled" in what
    assert "mokutil --import" in action


def test_a_module_that_was_never_built_for_the_running_kernel():
    what, where, action = only(
        host=on_host(modules={}, dkms=(DkmsBuild("nvidia", "580.159.04", "", "added"),)), disk={}
    )
    assert (what, where) == (f"no driver is loaded: there is no module for kernel {KERNEL}", f"kernel {KERNEL}")
    assert action == (
        f"install linux-headers-{KERNEL}, then run 'dkms autoinstall -k {KERNEL}'; if that fails, read "
        "/var/lib/dkms/nvidia/580.159.04/build/make.log"
    )


def test_a_loaded_driver_that_is_gone_from_the_disk():
    what, _where, _action = only(disk={})
    assert what == f"the next load of the driver fails: there is no module for kernel {KERNEL}"


def test_the_next_kernel_has_no_module():
    host = on_host(next_kernel=NEXT, packages={**HOST.packages, f"linux-headers-{NEXT}": "6.8.0-52.53"})
    what, where, action = only(host=host)
    assert what == f"the next boot has no driver: there is no module for kernel {NEXT}"
    assert where == f"kernel {NEXT}"
    assert action.startswith(f"run 'dkms autoinstall -k {NEXT}'")


def test_headers_are_called_otherwise_on_rhel():
    host = replace(HOST, distribution="rocky", version="9.6", next_kernel="5.14.0-600.el9.x86_64")
    assert only(host=host)[2].startswith("install kernel-devel-5.14.0-600.el9.x86_64, then run")


def test_a_module_that_was_built_for_another_kernel():
    what, where, _action = only(disk={KERNEL: module_text(built_for="6.8.0-40-generic")})
    assert (what, where) == (f"the module for kernel {KERNEL} was built for 6.8.0-40-generic", f"kernel {KERNEL}")


def test_nouveau_holds_the_chips():
    findings = found(replace(WHOLE, host=on_host(modules={"nouveau": Module()})))
    assert findings[0] == (
        "nouveau is loaded and holds the chips",
        "module nouveau",
        "prevent it from loading and reboot",
    )


def test_a_driver_below_the_releases_minimum():
    assert found(minimum="590.44.01")[0][0] == "driver 580.159.04 is loaded, the release needs 590.44.01 or newer"


def test_packages_that_an_upgrade_may_replace():
    host = on_host(holds=("nvidia-open",))
    assert only(host=host) == (
        "an upgrade may replace parts of the driver",
        "nvidia-dkms-580-open",
        "run 'apt-mark hold nvidia-dkms-580-open'",
    )
    assert found(replace(WHOLE, host=host), hold=False) == []


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (CommandResult(9, NO_DRIVER), "nvidia-smi cannot reach the driver"),
        (CommandResult(18, MISMATCH), "the tools and the loaded driver have different versions"),
        (CommandResult(6, "No devices were found\n"), "the driver is loaded, but bound to no chip"),
        (CommandResult(15, "", "something new\n"), "nvidia-smi ends with exit status 15; it prints: something new"),
        (CommandResult(127), "nvidia-smi is not installed"),
        (CommandResult(124), "nvidia-smi does not finish"),
    ],
)
def test_what_nvidia_smi_says_where_it_fails(answer, sentence):
    what, where, action = only(query=answer)
    assert what.startswith(sentence)
    assert where == "nvidia-smi"
    assert action


def test_a_chip_that_is_lost():
    assert {what for what, _where, _action in found(replace(WHOLE, query=CommandResult(15, LOST)))} == {
        "a chip no longer responds",
        "a chip does not respond",
    }


def test_a_value_that_is_an_error():
    what, where, _action = only(query=CommandResult(0, QUERY.replace("143771 MiB", "ERR!")))
    assert (what, where) == ("nvidia-smi shows ERR!", f"chip {CHIP}")
    assert only(query=CommandResult(0, QUERY.replace("Disabled", "[GPU requires reset]")))[0].endswith(
        "[GPU requires reset]"
    )


def test_gpus_of_several_models_that_nvidia_smi_numbers_otherwise_than_plans_do():
    host = recorded("h200/cuda-recording-2.json")
    first, second = host.query.out.splitlines(True)
    other = second.replace("NVIDIA H200", "NVIDIA L4")

    def found(*rows):
        findings = check_driver(replace(host, query=CommandResult(0, "".join(rows))))
        return [finding.what for finding in findings if "several models" in finding.what]

    assert found(first, other) == found(second, first) == []
    assert found(other, first) == [
        "nvidia-smi lists GPUs of several models as 0000:00:07.0, 0000:00:06.0, plans by PCI addresses"
    ]


def test_chips_on_pci_that_nvidia_smi_does_not_list():
    what, where, action = only(chips=(CHIP, "0000:5d:00.0"))
    assert what == "nvidia-smi lists 1 of 2 chips on PCI; the driver is not bound to it"
    assert (where, action) == ("chip 0000:5d:00.0", "read why with 'dmesg | grep 0000:5d:00.0'")
    what, _where, _action = only(
        chips=(CHIP, "0000:5d:00.0"), information={CHIP: "", "0000:5d:00.0": "Model: NVIDIA H200\n"}
    )
    assert what.endswith("the driver is bound to it")
    what, _where, action = only(
        chips=(CHIP, "0000:5d:00.0"), information={CHIP: "", "0000:5d:00.0": "Model: x\nGPU Excluded:\t Yes\n"}
    )
    assert what.endswith("the driver is configured to exclude it")
    assert "NVreg_ExcludedGpus" in action


@pytest.mark.parametrize(
    ("element", "other", "sentence"),
    [
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Reset", "the driver asks for: Reset"),
        ("<remapped_row_failure>No", "<remapped_row_failure>Yes", "a bad row of memory could not be replaced"),
        ("<pending_mig>Disabled", "<pending_mig>Enabled", "MIG is Disabled and will be Enabled"),
        ("<persistence_mode>Enabled", "<persistence_mode>Disabled", "persistence mode is off"),
    ],
)
def test_what_the_report_of_a_chip_says(element, other, sentence):
    assert element in REPORT
    what, where, _action = only(report=CommandResult(0, REPORT.replace(element, other)))
    assert what.startswith(sentence)
    assert where == f"chip {CHIP}"


def divided(*memory):
    """Return the report of a chip with MIG on, and instances of this memory in MiB."""
    parts = "".join(
        f"<mig_device><fb_memory_usage><total>{mib}</total></fb_memory_usage></mig_device>" for mib in memory
    )
    report = REPORT.replace("<current_mig>Disabled", "<current_mig>Enabled")
    report = report.replace("<pending_mig>Disabled", "<pending_mig>Enabled")
    return CommandResult(0, report.replace("<mig_devices>", f"<mig_devices>{parts}"))


def test_a_chip_that_is_divided():
    what, where, action = only(report=divided("16384 MiB", "71680 MiB"))
    assert what == "MIG is on (of 16384, 71680 MiB): programs see instances of the chip, and plans take whole chips"
    assert "set accelerator_partition of the host, such as 7x1g.10gb" in action
    assert (where, f"--id={CHIP} --multi-instance-gpu=0" in action) == (f"chip {CHIP}", True)
    assert only(report=divided())[0].startswith("MIG is on (without instances)")


@pytest.mark.parametrize(
    ("partition", "report", "shown"),
    [
        # An H200 as public threads show it: 1g.18gb has 16 GiB.
        ("7x1g.18gb", divided(*["16384 MiB"] * 7), None),
        ("2X3G.71GB", divided("71680 MiB", "71680 MiB"), None),
        ("7x1g.18gb", divided(*["16384 MiB"] * 6), ", ".join(["16384"] * 6)),
        ("2x3g.71gb", divided("71680 MiB", "16384 MiB"), "71680, 16384"),
        ("2x3g.71gb", divided("71680 MiB", "N/A"), "71680, 0"),
        ("1x7g.141gb", divided(), ""),
        ("1x7g.141gb", CommandResult(0, REPORT), ""),
    ],
)
def test_mig_instances_are_those_that_the_plans_are_for(partition, report, shown):
    findings = found(replace(WHOLE, report=report, partition=partition, memory={CHIP: 144384}))
    has = "no MIG instances" if shown == "" else f"instances of {shown} MiB"
    expected = [] if shown is None else [f"accelerator_partition is {partition}, the chip has {has}"]
    assert [what for what, _where, _action in findings] == expected
    count, profile = int(partition[0]), partition[2:].lower()
    create = f"'nvidia-smi mig -i {CHIP} -cgi {','.join([profile] * count)} -C'"
    assert all(create in action for _what, _where, action in findings)


# A guest with a vGPU: the licence as a public test shows it from a real NVIDIA L40S-2Q with driver 580.105.08, the mode
# by nvidia-smi's manual, which lists None, Pass-Through, VGPU, Host VGPU and Host VSGA.
VGPU = (
    f'<nvidia_smi_log><gpu id="0000{CHIP}"><gpu_virtualization_mode><virtualization_mode>VGPU</virtualization_mode>'
    "</gpu_virtualization_mode><vgpu_software_licensed_product><licensed_product_name>NVIDIA RTX Virtual Workstation"
    "</licensed_product_name><license_status>Licensed (Expiry: 2026-7-7 16:1:44 GMT)</license_status>"
    "</vgpu_software_licensed_product></gpu></nvidia_smi_log>"
)


def test_a_vgpu_is_named_with_what_to_declare():
    query = CommandResult(0, QUERY.replace("143771 MiB", "2048 MiB"))
    what, _where, action = only(query=query, report=CommandResult(0, VGPU), memory={CHIP: 49152})
    assert what == "it is a vGPU with 2048 MiB of memory, expected about 49152 for the id"
    assert "set accelerator_memory_gib of the host to 2.0" in action
    assert found(replace(WHOLE, query=query, report=CommandResult(0, VGPU), memory={CHIP: 2048})) == []


def test_a_vgpu_without_a_licence():
    report = VGPU.replace("Licensed (Expiry: 2026-7-7 16:1:44 GMT)", "Unlicensed (Restricted)")
    assert only(report=CommandResult(0, report))[0] == (
        "its vGPU licence is Unlicensed (Restricted): the driver slows an unlicensed vGPU down"
    )


@pytest.mark.parametrize(
    ("memory", "expected", "findings"),
    [
        ("143771 MiB", 144384, 0),
        # An H200 of which a hypervisor hands out a part, under the same id.
        ("40960 MiB", 144384, 1),
        # A10G and RTX A6000 with error correction, as they are.
        ("22731 MiB", 24576, 0),
        ("46068 MiB", 49152, 0),
        # A chip that shares the host's memory.
        ("[N/A]", 131072, 0),
        ("143771 MiB", 0, 0),
    ],
)
def test_memory_that_is_not_that_of_the_chip(memory, expected, findings):
    query = CommandResult(0, QUERY.replace("143771 MiB", memory))
    shown = found(replace(WHOLE, query=query, memory={CHIP: expected} if expected else {}))
    assert len(shown) == findings
    if findings:
        assert shown[0][0] == "it has 40960 MiB of memory, expected about 144384 for the id"


# Ubuntu's modules for one kernel each: no DKMS, and their packages have the kernel's version.
PREBUILT = {
    "nvidia-utils-580-server": "580.159.04-0ubuntu0.24.04.1",
    f"linux-modules-nvidia-580-server-open-{KERNEL}": "6.8.0-50.51",
    "linux-modules-nvidia-580-server-open-generic": "6.8.0-50.51",
}


def test_modules_that_ubuntu_built_belong_to_the_driver():
    prebuilt = on_host(packages=PREBUILT, dkms=(), holds=tuple(PREBUILT))
    assert found(replace(WHOLE, host=prebuilt)) == []
    assert not is_foreign(prebuilt)
    loose = on_host(packages=PREBUILT, dkms=(), holds=("nvidia-utils-580-server",))
    assert only(host=loose)[1] == (
        f"linux-modules-nvidia-580-server-open-{KERNEL}, linux-modules-nvidia-580-server-open-generic"
    )


def test_the_next_kernel_s_module_of_another_version():
    host = on_host(packages=PREBUILT, dkms=(), holds=tuple(PREBUILT), next_kernel=NEXT)
    disk = {KERNEL: module_text(), NEXT: module_text(NEXT, "580.178.04")}
    what, where, _action = only(host=host, disk=disk)
    assert what == "the next boot loads driver 580.178.04, and 580.159.04 with its tools is in use"
    assert where == f"kernel {NEXT}"
    assert found(replace(WHOLE, host=host, disk={**disk, NEXT: module_text(NEXT)})) == []


def test_a_persistence_daemon_that_does_not_run():
    assert only(services={"nvidia-persistenced": "failed"})[0] == "nvidia-persistenced is failed"
    assert only(services={})[0] == "nvidia-persistenced is not known to systemd"


# A machine with NVSwitches.

FABRIC_PACKAGE = "nvidia-fabricmanager"
JOINED = REPORT.replace("<state>N/A", "<state>Completed", 1).replace("<status>N/A", "<status>Success", 1)
HGX_HOST = replace(
    HOST, packages={**HOST.packages, FABRIC_PACKAGE: "580.159.04-1"}, holds=(*HOST.holds, FABRIC_PACKAGE)
)
HGX = replace(
    WHOLE,
    host=HGX_HOST,
    fabric="nvswitch",
    report=CommandResult(0, JOINED),
    services={"nvidia-persistenced": "active", "nvidia-fabricmanager": "active"},
)


def test_a_machine_with_switches_on_which_all_is_proven():
    assert found(HGX) == []
    # As A100 answers.
    assert found(replace(HGX, report=CommandResult(0, REPORT))) == []


def test_a_fabric_manager_that_does_not_run():
    ((what, where, action),) = found(replace(HGX, services={**HGX.services, "nvidia-fabricmanager": "failed"}))
    assert (what, where) == ("nvidia-fabricmanager is failed", "service nvidia-fabricmanager")
    assert "journalctl -u nvidia-fabricmanager" in action


def test_a_fabric_manager_of_another_version():
    host = replace(HGX_HOST, packages={**HGX_HOST.packages, FABRIC_PACKAGE: "580.95.05-1"})
    ((what, where, action),) = found(replace(HGX, host=host))
    assert what == "nvidia-fabricmanager is 580.95.05, the driver is 580.159.04"
    assert where == "package nvidia-fabricmanager"
    assert action.startswith("install nvidia-fabricmanager 580.159.04")


def test_a_fabric_manager_with_nothing_to_manage():
    ((what, where, action),) = found(replace(HGX, fabric=""))
    assert (where, action) == ("package nvidia-fabricmanager", "remove it")
    assert what == "this machine has no NVSwitches to manage"


def test_a_chip_that_has_not_joined_the_fabric():
    text = JOINED.replace("<state>Completed", "<state>In Progress").replace("<status>Success", "<status>N/A")
    ((what, where, _action),) = found(replace(HGX, report=CommandResult(0, text)))
    assert (what, where) == ("the chip has not joined the NVLink fabric: In Progress", f"chip {CHIP}")


# The kernel's log.


def test_a_chip_that_has_fallen_off_the_bus():
    what, where, action = only(kernel_log=XID_79 * 3)
    assert (what, where) == ("Xid 79 since the last boot: The chip has fallen off the bus", f"chip {CHIP}")
    assert action.startswith("reboot, or switch the machine off and on")


@pytest.mark.parametrize(
    "number", ["11", "13", "31", "32", "43", "45", "63", "68", "69", "80", "94", "106", "162", "999"]
)
def test_an_error_of_a_program_or_one_that_needs_no_reset_is_no_finding(number):
    assert found(replace(WHOLE, kernel_log=XID_79.replace("79", number))) == []


def test_a_recovery_that_is_over_is_no_finding():
    line = "NVRM: Xid (PCI:0000:00:06): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n"
    assert found(replace(WHOLE, kernel_log=line)) == []
    assert found(replace(WHOLE, kernel_log=XID_79 + line)) == []
    assert only(kernel_log=line + XID_79)[0] == "Xid 79 since the last boot: The chip has fallen off the bus"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("NVRM: installed in this system is not supported by open\n", "the open kernel modules are loaded"),
        ("NVRM: requires use of the NVIDIA open kernel modules.\n", "the proprietary kernel modules are loaded"),
    ],
)
def test_modules_of_the_wrong_flavour(line, sentence):
    _unlisted, finding = found(replace(WHOLE, kernel_log=line, chips=(CHIP, "0000:c5:00.0")))
    assert finding[0].startswith(sentence)
    # The log keeps it after a change of the modules without a reboot.
    assert found(replace(WHOLE, kernel_log=line)) == []


# Texts.


def test_the_kernels_form_of_a_bus_id():
    assert short_address("00000000:5D:00.0") == "0000:5d:00.0"
    assert short_address("00010000:5D:00.0") == "00010000:5d:00.0"
    assert short_address("0000:5d:00.0") == "0000:5d:00.0"


def test_builds_of_dkms_in_every_form():
    text = (
        "nvidia/580.159.04, 6.8.0-50-generic, x86_64: installed\n"
        "nvidia/580.159.04, 6.8.0-52-generic, x86_64: built (WARNING! Diff between built and installed module!)\n"
        "nvidia-current/550.163.01, 6.12.38+deb13-amd64, x86_64: installed\n"
        "nvidia, 535.261.03, 6.1.0-28-amd64, x86_64: installed\n"
        "nvidia-open/595.45.04: added\n"
        "zfs/2.2.7: broken\n"
    )
    assert parse_dkms(text) == (
        DkmsBuild("nvidia", "580.159.04", "6.8.0-50-generic", "installed"),
        DkmsBuild("nvidia", "580.159.04", "6.8.0-52-generic", "built"),
        DkmsBuild("nvidia-current", "550.163.01", "6.12.38+deb13-amd64", "installed"),
        DkmsBuild("nvidia", "535.261.03", "6.1.0-28-amd64", "installed"),
        DkmsBuild("nvidia-open", "595.45.04", "", "added"),
    )
    assert parse_dkms("Error! something\n") == ()


def test_what_modinfo_says():
    info = parse_module_info(module_text())
    assert (info.version, info.srcversion, info.kernel) == ("580.159.04", "AB12CD", KERNEL)
    assert parse_module_info("modinfo: ERROR: Module nvidia not found.\n") is None


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "<nvidia_smi_log>", "<other/>"])
def test_what_is_no_report_says_nothing(text):
    assert parse_report(text) == []
    assert parse_query(text) == []


def test_each_error_of_a_chip_is_one_finding():
    assert len(found(replace(WHOLE, kernel_log=XID_79 * 2 + XID_79.replace("79", "64")))) == 2


def recorded(name="h200/cuda-recording.json"):
    """Return what was read on real H100s and H200s: virtual machines whose driver came with their image."""
    data = json.loads((FIXTURES.parent / name).read_text())
    host = data.pop("host")
    modules = {name: Module(**module) for name, module in host.pop("modules").items()}
    host = Host(**{**host, "modules": modules, "dkms": (), "holds": tuple(host["holds"])})
    query, report, chips = (data.pop(name) for name in ("query", "report", "chips"))
    return CudaRecording(host, tuple(chips), query=CommandResult(**query), report=CommandResult(**report), **data)


@pytest.mark.parametrize("name", ["h200/cuda-recording.json", "h200/cuda-recording-2.json", "h100/cuda-recording.json"])
def test_a_real_host_is_whole_but_for_what_its_image_left_out(name):
    sentences = [finding.what for finding in check_driver(recorded(name), "580.65.06")]
    assert sentences == [
        "the next load of the driver fails: there is no module for kernel 6.18.44-fc-v657-gpu",
        "nvidia-persistenced is not known to systemd",
    ]


def test_of_two_real_chips_one_that_is_not_listed_is_named():
    host = recorded("h200/cuda-recording-2.json")
    first, _second = host.query.out.splitlines(True)
    (finding,) = (
        one for one in check_driver(replace(host, query=CommandResult(0, first))) if one.where.startswith("chip")
    )
    assert (finding.where, finding.what) == (
        "chip 0000:00:07.0",
        "nvidia-smi lists 1 of 2 chips on PCI; the driver is bound to it",
    )


def test_and_the_same_host_with_a_chip_more_and_a_release_that_wants_more():
    host = recorded()
    sentences = [finding.what for finding in check_driver(replace(host, chips=(*host.chips, "0000:ff:00.0")), "999.1")]
    assert "driver 580.159.04 is loaded, the release needs 999.1 or newer" in sentences
    assert "nvidia-smi lists 1 of 2 chips on PCI; the driver is not bound to it" in sentences


# From the vendor's installer, a cloud's image or a hypervisor: no package, no daemon, nothing for another kernel.
FOREIGN = replace(
    WHOLE, host=replace(HOST, packages={}, holds=(), dkms=(), next_kernel=NEXT), services={}, disk={}
)  # fmt: skip


def test_what_a_foreign_driver_lacks_for_the_next_boot_is_for_later():
    findings = check_driver(FOREIGN, "580.65.06")
    assert [finding.what for finding in findings if not finding.later] == []
    assert [finding.what for finding in findings if finding.later] == [
        f"the next load of the driver fails: there is no module for kernel {KERNEL}",
        f"the next boot has no driver: there is no module for kernel {NEXT}",
        "nvidia-persistenced is not known to systemd",
    ]


def test_a_foreign_driver_that_does_not_work_is_a_finding():
    findings = check_driver(replace(FOREIGN, query=CommandResult(9, NO_DRIVER)), "580.65.06")
    assert "nvidia-smi cannot reach the driver" in [finding.what for finding in findings if not finding.later]
    old = check_driver(FOREIGN, "590.1")
    assert [finding.what for finding in old if not finding.later] == [
        "driver 580.159.04 is loaded, the release needs 590.1 or newer"
    ]


def test_nothing_of_a_driver_from_packages_is_for_later():
    findings = check_driver(replace(FOREIGN, host=replace(FOREIGN.host, packages=HOST.packages)), "580.65.06")
    assert findings
    assert not any(finding.later for finding in findings)


BOARDS = yaml.safe_load((FIXTURES.parent / "nvidia_boards.yml").read_text(encoding="utf-8"))


def board_recording(shown, instances=()):
    """Return the recording of a host with one board that others recorded, in the elements that it had."""
    driver, device, mib, mig, persistence, fabric, recovery, remapping, brand, ecc = shown
    elements = {
        "mig_mode": mig and {"current_mig": mig[0], "pending_mig": mig[1]},
        "mig_devices": "".join(
            f"<mig_device>{as_xml({'fb_memory_usage': as_xml({'total': f'{mib} MiB'})})}</mig_device>"
            for mib in instances
        ),
        "persistence_mode": persistence,
        "fabric": fabric and fabric_xml(*fabric),
        "gpu_recovery_action": recovery,
        "remapped_rows": remapping and {"remapped_row_failure": remapping},
        "product_brand": brand,
        "ecc_mode": ecc and {"current_ecc": ecc},
    }
    texts = [f"<{name}>{as_xml(value)}</{name}>" for name, value in elements.items() if value is not None]
    report = f'<nvidia_smi_log><gpu id="0000{CHIP}">{"".join(texts)}</gpu></nvidia_smi_log>'
    row = f"0, a board, GPU-1, 8.6, {mib} MiB, {driver}, {(mig or ['N/A'])[0]}, 0000{CHIP}, 0x{device.upper()}10DE\n"
    host = on_host(modules={"nvidia": Module(driver, "AB12CD")})
    disk = {KERNEL: module_text(version=driver)}
    known = load_catalogue().chips.get(f"10de:{device}")
    memory = {CHIP: int((known.memory_gib or 0) * 1024)} if known else {}
    answers = {"query": CommandResult(0, row), "report": CommandResult(0, report)}
    return known and known.model, replace(WHOLE, host=host, disk=disk, memory=memory, **answers)


def fabric_xml(state, status, health=""):
    return as_xml({"state": state, "status": status, **({"health": as_xml({"summary": health})} if health else {})})


def as_xml(value):
    return value if isinstance(value, str) else "".join(f"<{name}>{text}</{name}>" for name, text in value.items())


@pytest.mark.parametrize("entry", BOARDS, ids=lambda entry: entry["source"].split(",")[0])
def test_boards_that_others_recorded(entry):
    model, recording = board_recording(entry["shown"], entry.get("mig", ()))
    assert model == entry["board"]
    if model:
        # No rule refuses the driver with which the board ran.
        version, branch = entry["shown"][0], int(entry["shown"][0].partition(".")[0])
        chip = Chip(CHIP, model, "", driver=load_catalogue().models[model].driver)
        check_supported([chip], branch, version)
        flavour_of([chip], branch)
    whats = [what for what, _where, _action in found(recording, minimum="")]
    mig, persistence = (entry["shown"][3] or [None])[0], entry["shown"][4]
    expected = ["persistence mode is off"] * (persistence == "Disabled")
    expected += [f"MIG is on (of {str(entry.get('mig'))[1:-1]} MiB): programs see"] * (mig == "Enabled")
    assert len(whats) == len(expected)
    assert all(what.startswith(begin) for what, begin in zip(whats, expected))
    (chip,) = parse_counters([recording.report], "").chips
    # ECC is off on none of the servers' boards; on a GeForce or a workstation's it is as sold.
    assert (chip.chip, chip.faults) == (CHIP, ())


def test_the_recordings_are_at_least_fifteen_and_each_from_another_board_or_driver():
    shown = [tuple(map(str, entry["shown"][:2])) for entry in BOARDS]
    assert len(shown) == len(set(shown)) >= 15


@pytest.mark.skipif("CAPTURES" not in os.environ, reason="no clones of the repositories that nvidia_boards.yml names")
@pytest.mark.parametrize("entry", BOARDS, ids=lambda entry: entry["source"].split(",")[0])
def test_a_row_is_what_the_whole_recording_shows(entry):
    driver, device, mib = entry["shown"][:3]
    ask = ["git", "cat-file", "blob", entry["blob"]]
    clones = sorted(Path(os.environ["CAPTURES"]).iterdir())
    answers = [subprocess.run(ask, cwd=clone, capture_output=True, text=True, check=False).stdout for clone in clones]
    text = next(filter(None, answers))
    (expected,) = parse_report(board_recording(entry["shown"], entry.get("mig", ()))[1].report.out)
    reports, chips = parse_report(text), parse_counters([CommandResult(0, text)], "").chips
    parts = text.split("<gpu id=")[1:]
    assert len(reports) == len(chips) == len(parts) > 0
    assert f"<driver_version>{driver}</driver_version>" in text
    assert chips[0].memory_total == mib * 1024**2
    for report, chip, part in zip(reports, chips, parts):
        assert replace(report, address=expected.address) == expected
        assert (chip.chip, chip.faults) == (report.address, ())
        assert f"<pci_device_id>{device.upper()}10DE" in part or "its ids replaced" in entry["source"]
        # Each figure that the board has is read, in the form of each driver.
        draws = re.search(r"power_draw>[0-9.]+ W<", part), re.search(r"(enforced|current)_power_limit>[0-9.]+ W<", part)
        assert [chip.watts is not None, chip.watts_limit is not None] == list(map(bool, draws))
        assert set(chip.hertz) == {"sm", "mem"}
        assert "gpu" in chip.celsius
        if "<current_ecc>Enabled<" in part:
            assert any(name.startswith("ECC") and "uncorrectable" in name for name in chip.errors) or entry.get("mig")


@pytest.mark.parametrize("entry", yaml.safe_load((FIXTURES.parent / "nvidia_fabric.yml").read_text(encoding="utf-8")))
def test_nvlink_of_a_rack_as_threads_show_it(entry):
    fabric = fabric_xml(*entry["shown"])
    report = f'<nvidia_smi_log><gpu id="0000{CHIP}"><fabric>{fabric}</fabric></gpu></nvidia_smi_log>'
    whats = [what for what, _where, _action in found(replace(WHOLE, report=CommandResult(0, report)))]
    assert whats == ([entry["finding"]] if entry["finding"] else [])
    (chip,) = parse_counters([CommandResult(0, report)], "").chips
    assert bool(chip.faults) == bool(entry["finding"])


def test_comments_in_the_report_of_driver_610_do_not_matter():
    # As https://github.com/AstraExt/astra-monitor/pull/227 tells of 610.43.02.
    report = WHOLE.report.out.replace("<persistence_mode>", "<!-- a comment --><persistence_mode>")
    assert "<!-- a comment -->" in report
    assert parse_report(report) == parse_report(WHOLE.report.out)


# The health service's judgement of the same report.

BOOK = FaultBook.from_document(faults_of_host("cuda"))
STATES_OF_CHIPS = [
    *((path, bad) for path, bad, _what in counters.FAULTS),
    *((path, "?") for path, _bad, _what in counters.FAULTS),
    *((path, value) for path, known, _what in counters.STATES for value in (*known, "a new word")),
    ("pci/replay_counter", "[GPU is lost]"),
    ("pci/replay_counter", "ERR!"),
    ("pci/replay_counter", "[GPU requires reset]"),
    ("ecc_mode/current_ecc", "Disabled"),
]


def reported(path, value):
    """Return a report with a value at a path of its first chip."""
    root = ElementTree.fromstring(REPORT)
    at = root.find("gpu")
    for name in path.split("/"):
        inside = at.find(name)
        at = ElementTree.SubElement(at, name) if inside is None else inside
    at.text = value
    return CommandResult(0, '<?xml version="1.0" ?>\n' + ElementTree.tostring(root, "unicode"))


@pytest.mark.parametrize(("path", "value"), STATES_OF_CHIPS)
def test_a_host_is_refused_for_the_states_for_which_the_health_service_takes_its_chip_out(path, value):
    report = reported(path, value)
    chips = counters.parse_counters([report], "").chips
    takes_out = [event.fault.takes_out for event in states_of(chips, BOOK).values()]
    findings = check_driver(replace(WHOLE, report=report), book=BOOK)
    # A chip that has not joined is reported once the host's other findings show that it has to.
    if path not in ("fabric/state", "fabric/status"):
        # What takes nothing out is a warning.
        assert sorted(not finding.later for finding in findings) == sorted(takes_out), findings
