# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of AMD's tools in all their shapes, and every way in which a host can be less than whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.answers import (
    GpuAnswer,
    gfx_of,
    parse_amd_smi,
    parse_kfd,
    parse_rocm_smi,
)
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import Blacklist, RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.error_records import ErrorRecord
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.proof import (
    Node,
    RocmRecording,
    check_driver,
    listed,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import FaultBook
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host, Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

# Debian's own tools on a host that has no module.
RECORDED = json.loads(
    (Path(__file__).parents[4] / "fixtures" / "rocm-debian13" / "no-driver.json").read_text(encoding="utf-8")
)["answers"]
KERNEL, NEXT = "6.8.0-50-generic", "6.8.0-52-generic"
CHIPS = ("0000:0c:00.0", "0000:85:00.0")
MODINFO = (
    "filename:       /lib/modules/{kernel}/updates/dkms/amdgpu.ko.zst\nversion:        {version}\n"
    "license:        GPL and additional rights\nsrcversion:     {srcversion}\nvermagic:       {kernel} SMP preempt\n"
)
# In the form of the fact sheet's fixture of an MI300X.
ENTRY = {
    "asic": {
        "market_name": "AMD Instinct MI300X",
        "vendor_id": "0x1002",
        "device_id": "0x74a1",
        "num_compute_units": 304,
        "target_graphics_version": "gfx942",
    },
    "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
    "driver": {"name": "amdgpu", "version": "6.16.13"},
}
KFD_NODE = (
    "cpu_cores_count 0\nsimd_count 1216\nlocation_id {location}\ndomain {domain}\nvendor_id 4098\ndevice_id 29857\n"
    "gfx_target_version 90402\nunique_id 12345678901234567890\ndrm_render_minor 128\n"
)
CPU_NODE = "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\nlocation_id 0\ngfx_target_version 0\n"


def amd_smi(*addresses):
    return [{"gpu": number, **ENTRY, "bus": {"bdf": address.upper()}} for number, address in enumerate(addresses)]


def module_text(kernel=KERNEL, version="6.16.13", srcversion="AB12"):
    return MODINFO.format(kernel=kernel, version=version, srcversion=srcversion)


HOST = Host(
    "ubuntu",
    "24.04",
    "noble",
    "x86_64",
    KERNEL,
    KERNEL,
    secure_boot=False,
    packages={"amdgpu-dkms": "1:6.16.13.30300300-1.24.04", "amdgpu-dkms-firmware": "30.30.3.0.30300300-1.24.04"},
    modules={"amdgpu": Module("6.16.13", "AB12")},
    dkms=(DkmsBuild("amdgpu", "6.16.13-1.24.04", KERNEL, "installed"),),
    holds=("amdgpu-dkms", "amdgpu-dkms-firmware"),
)
WHOLE = RocmRecording(
    host=HOST,
    chips=CHIPS,
    kfd=tuple(GpuAnswer(address, generation="gfx942") for address in CHIPS),
    amd_smi=CommandResult(0, json.dumps({"gpu_data": amd_smi(*CHIPS)})),
    bound=dict.fromkeys(CHIPS, "amdgpu"),
    nodes=(
        Node("/dev/kfd", "render", 0o660),
        Node("/dev/dri/renderD128", "render", 0o660),
        Node("/dev/dri/renderD129", "render", 0o666),
    ),
    disk={KERNEL: module_text()},
)


def found(recording=WHOLE, minimum="6.14.14", hold=True):
    return [(finding.what, finding.where, finding.action) for finding in check_driver(recording, minimum, hold)]


def only(recording=WHOLE, minimum="6.14.14", **changes):
    """Return the one finding of the whole recording with these changes."""
    findings = found(replace(recording, **changes), minimum)
    assert len(findings) == 1, findings
    return findings[0]


def on_host(**changes):
    return replace(HOST, **changes)


@pytest.mark.parametrize("before", ["", "WARNING: 1 GPU is in a low-power state\n"])
@pytest.mark.parametrize("shape", [lambda gpus: {"gpu_data": gpus}, lambda gpus: gpus])
def test_both_shapes_of_amd_smi(shape, before):
    gpus = parse_amd_smi(before + json.dumps(shape(amd_smi(*CHIPS)), indent=4))
    assert gpus == [GpuAnswer(address, "AMD Instinct MI300X", "gfx942", "6.16.13") for address in CHIPS]


def test_partitions_are_one_chip():
    partitions = [f"0000:0c:00.{number}" for number in range(8)]
    assert [gpu.address for gpu in parse_amd_smi(json.dumps(amd_smi(*partitions)))] == ["0000:0c:00.0"]
    nodes = [KFD_NODE.format(location=0x0C00 + number, domain=0) for number in range(8)]
    assert [gpu.address for gpu in parse_kfd(nodes)] == ["0000:0c:00.0"]


def test_an_mi350x_as_a_thread_shows_it():
    # Keys and values of https://github.com/ROCm/rocm-systems/pull/2987 (amdgpu 6.18.3), which shows them as text.
    # amd-smi lists network cards too since; how they stand in JSON is a guess.
    entry = {
        "gpu": 0,
        "asic": {"market_name": "AMD Instinct MI350X", "device_id": "0x75a0", "target_graphics_version": "gfx950"},
        "bus": {"bdf": "0000:05:00.0", "slot_type": "OAM", "pcie_levels": "N/A"},
        "driver": {"name": "amdgpu", "version": "6.18.3", "os_kernel_version": "5.15.0-164-generic"},
    }
    document = {"gpu_data": [entry], "nic_data": [{"ai_nic": 0, "bdf": "0000:e2:00.0"}]}
    assert parse_amd_smi(json.dumps(document)) == [GpuAnswer("0000:05:00.0", "AMD Instinct MI350X", "gfx950", "6.18.3")]


@pytest.mark.parametrize("text", ["", "not json", "{", "[1, 2]", '{"gpu_data": {}}', '[{"gpu": 0}]', '{"error": "x"}'])
def test_what_is_no_list_of_chips(text):
    assert parse_amd_smi(text) == []
    assert parse_rocm_smi(text) == []


def test_rocm_smi():
    text = json.dumps(
        {
            "card1": {"Card Series": "N/A", "PCI Bus": "0000:85:00.0"},
            "card0": {"Card Series": "AMD Instinct MI300X", "GFX Version": "gfx942", "PCI Bus": "0000:0C:00.0"},
            "system": {"Driver version": "6.16.13"},
        }
    )
    assert parse_rocm_smi(text) == [
        GpuAnswer("0000:0c:00.0", "AMD Instinct MI300X", "gfx942"),
        GpuAnswer("0000:85:00.0"),
    ]


def test_the_kernels_nodes():
    nodes = [CPU_NODE, KFD_NODE.format(location=0x0C00, domain=0), KFD_NODE.format(location=0x8500, domain=1), ""]
    assert parse_kfd(nodes) == [
        GpuAnswer("0000:0c:00.0", generation="gfx942"),
        GpuAnswer("0001:85:00.0", generation="gfx942"),
    ]


@pytest.mark.parametrize(
    ("number", "gfx"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (110000, "gfx1100"), (120001, "gfx1201"), (0, "")],
)
def test_names_of_targets(number, gfx):
    assert gfx_of(number) == gfx


def test_a_host_on_which_all_is_proven_has_no_findings():
    assert found() == []
    assert found(minimum="", hold=False) == []
    assert listed(WHOLE)[0] == "amd-smi"


@pytest.mark.parametrize("minimum", ["6.14.14", ""])
def test_no_tool_is_missed_where_none_is_wanted(minimum):
    bare = replace(WHOLE, amd_smi=CommandResult(127))
    assert found(bare, minimum) == []
    assert listed(bare) == ("the kernel (KFD)", list(WHOLE.kfd))
    what, where, _action = only(bare, wants_tools=True)
    assert (what, where) == ("neither amd-smi nor rocm-smi is installed", "amd-smi")


LOOK = "run 'modprobe amdgpu' and read the kernel's messages with 'dmesg | grep -i amdgpu'"
NOT_BUILT = "there is no module for kernel"


@pytest.mark.parametrize(
    ("changes", "what", "action"),
    [
        (
            {"disk": {KERNEL: module_text(version="7.1.3.31500000")}},
            "driver 6.16.13 is loaded, 7.1.3.31500000 is on disk",
            "reboot, or stop",
        ),
        (
            {"disk": {KERNEL: module_text(srcversion="99")}},
            "the driver that is loaded (srcversion AB12) is another build of 6.16.13 than the one on disk (srcversion "
            "99)",
            "reboot, or stop",
        ),
        (
            {"disk": {}},
            f"the next load of the driver fails: {NOT_BUILT} {KERNEL}",
            f"install linux-headers-{KERNEL}, then run 'dkms autoinstall -k {KERNEL}'",
        ),
        ({"host": on_host(modules={})}, "driver 6.16.13 is on disk and not loaded", LOOK),
        (
            {"host": on_host(next_kernel=NEXT)},
            f"the next boot has no driver: {NOT_BUILT} {NEXT}",
            f"install linux-headers-{NEXT}, then run",
        ),
        (
            {"host": on_host(holds=("amdgpu-dkms",))},
            "an upgrade may replace parts of the driver",
            "run 'apt-mark hold amdgpu-dkms-firmware'",
        ),
        (
            {"host": on_host(modules={}, secure_boot=True)},
            "driver 6.16.13 is on disk and not loaded: Secure Boot is on and the key that DKMS signs with is not "
            "enrolled",
            "enrol the key",
        ),
    ],
)
def test_modules_kernels_and_holds(changes, what, action):
    finding = only(**changes)
    assert finding[0] == what
    assert finding[2].startswith(action)


def test_a_driver_below_the_minimum():
    assert only(minimum="6.19")[0] == "driver 6.16.13 is loaded, the release needs 6.19 or newer"


OWN = on_host(packages={}, dkms=(), holds=(), modules={"amdgpu": Module(None, "AB12")})
OWN_DISK = {KERNEL: module_text().replace("version:        6.16.13\n", "")}


def test_the_kernels_own_driver_has_no_version():
    assert found(replace(WHOLE, host=OWN, disk=OWN_DISK), minimum="") == []
    what, where, action = only(host=OWN, disk=OWN_DISK)
    assert what == (
        "the kernel's own amdgpu is loaded, which has no version, so it is unknown whether it is 6.14.14 or newer"
    )
    assert where == "module amdgpu"
    assert "rocm_source to distro" in action


def test_kernels_that_would_come_up_with_their_own_driver():
    own = MODINFO.format(kernel=NEXT, version="", srcversion="0WN").replace("version:        \n", "", 1)
    what, where, action = only(host=on_host(next_kernel=NEXT), disk={KERNEL: module_text(), NEXT: own})
    assert what == f"the next boot has no driver: there is no module for kernel {NEXT}"
    assert where == f"kernel {NEXT}"
    assert action.startswith(f"install linux-headers-{NEXT}, then run 'dkms autoinstall -k {NEXT}'")
    assert found(replace(WHOLE, host=replace(OWN, next_kernel=NEXT), disk={**OWN_DISK, NEXT: own}), minimum="") == []


def test_an_installation_whose_build_failed():
    host = replace(OWN, unfinished=("amdgpu-dkms",), modules={}, dkms=(DkmsBuild("amdgpu", "7.1.3-1", "", "added"),))
    findings = found(replace(WHOLE, host=host, disk=OWN_DISK, build_log="error: implicit declaration"), minimum="")
    assert [what for what, _where, _action in findings] == [
        f"no driver is loaded: there is no module for kernel {KERNEL}"
    ]
    assert findings[0][2].endswith("the last build ended with: error: implicit declaration")


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        (Blacklist("/etc/modprobe.d/cloud.conf", 3, "blacklist amdgpu"), "/etc/modprobe.d/cloud.conf line 3"),
        (Blacklist("", 0, "nomodeset"), "the kernel's command line"),
    ],
)
def test_what_keeps_the_driver_out(entry, where):
    what, place, action = only(shown=RocmHostState(blacklists=(entry,)))
    assert (what, place) == (f"amdgpu is prevented from loading at boot: {entry.text}", where)
    assert "rocm_blacklist_remove" in action


NO_DRIVER = "amd-smi fails: no driver is loaded"
NO_CHIP = "ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status\n"
NO_LIBRARY = "ModuleNotFoundError: No module named 'amdsmi'"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (CommandResult(255, "", RECORDED["amd-smi static --json"]["err"]), NO_DRIVER),
        (
            CommandResult(1, "", "ERROR:root:Drivers not loaded (amdgpu, amd_hsmp drivers not found in modules)\n"),
            NO_DRIVER,
        ),
        (
            CommandResult(1, "", "AMDSMI_STATUS_NO_PERM - Permission Denied\n"),
            "amd-smi fails: it has no permission to open the chips",
        ),
        (CommandResult(255, "", NO_CHIP), "amd-smi fails: the driver is loaded, but bound to no chip"),
        (
            CommandResult(1, "", f"Traceback\n{NO_LIBRARY}\n"),
            f"amd-smi ends with exit status 1; it prints: {NO_LIBRARY}",
        ),
        (CommandResult(124), "amd-smi does not finish"),
    ],
)
def test_an_amd_smi_that_fails(answer, what):
    assert only(amd_smi=answer)[0] == what


def test_a_rocm_smi_that_fails_and_says_all_is_well():
    recorded = next(entry for name, entry in RECORDED.items() if name.startswith("rocm-smi"))
    assert recorded["rc"] == 0
    answer = CommandResult(recorded["rc"], recorded["out"], recorded["err"])
    assert only(amd_smi=CommandResult(127), rocm_smi=answer)[0] == "rocm-smi fails: no driver is loaded"


@pytest.mark.parametrize(
    ("changes", "why", "action"),
    [
        ({}, "the driver is not bound to it", "read why with 'dmesg | grep 0000:85:00.0'"),
        ({"bound": {CHIPS[1]: "vfio-pci"}}, "the driver vfio-pci is bound to it", "find out what bound it"),
        ({"kfd": WHOLE.kfd}, "the driver is bound to it", "read why with"),
    ],
)
def test_a_chip_that_cannot_be_used(changes, why, action):
    one = {"kfd": WHOLE.kfd[:1], "amd_smi": CommandResult(0, json.dumps(amd_smi(CHIPS[0]))), **changes}
    finding = only(**one)
    assert finding[:2] == (f"amd-smi lists 1 of 2 chips on PCI; {why}", f"chip {CHIPS[1]}")
    assert finding[2].startswith(action)


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ({"amd_smi": CommandResult(127)}, "the kernel (KFD)"),
        (
            {"amd_smi": CommandResult(127), "rocm_smi": CommandResult(0, '{"card0": {"PCI Bus": "0000:0C:00.0"}}')},
            "rocm-smi",
        ),
    ],
)
def test_who_lists_chips_where_there_is_no_amd_smi(changes, who):
    assert only(kfd=WHOLE.kfd[:1], **changes)[0].startswith(f"{who} lists 1 of 2 chips on PCI")


def test_chips_that_nobody_counts_are_no_finding():
    assert found(replace(WHOLE, chips=CHIPS[:1])) == []


@pytest.mark.parametrize(
    ("nodes", "what", "where"),
    [
        (WHOLE.nodes[1:], "the driver has chips, but there is no device node for them", "/dev/kfd"),
        (WHOLE.nodes[:2], "there are 1 render nodes for 2 chips", "/dev/dri/renderD*"),
        ((Node("/dev/kfd", "root", 0o600), *WHOLE.nodes[1:]), "its group is root with mode 0600", "/dev/kfd"),
        ((Node("/dev/kfd", "render", 0o600), *WHOLE.nodes[1:]), "its group is render with mode 0600", "/dev/kfd"),
        ((*WHOLE.nodes[:2], Node("/dev/dri/renderD129", "video", 0o660)), "its group is video", "/dev/dri/renderD129"),
    ],
)
def test_device_nodes(nodes, what, where):
    finding = only(nodes=nodes)
    assert finding[0].startswith(what)
    assert finding[1] == where


@pytest.mark.parametrize(
    ("line", "what", "where"),
    [
        (
            "[drm:amdgpu_init [amdgpu]] *ERROR* VGACON disables amdgpu kernel modesetting.",
            "amdgpu gives up because",
            "kernel log",
        ),
        (
            "amdgpu 0000:c5:00.0: Direct firmware load for amdgpu/gc_9_4_3_mec.bin failed with error -2",
            "firmware of a chip is missing",
            "chip 0000:c5:00.0",
        ),
        (
            "[drm:amdgpu_device_init.cold [amdgpu]] *ERROR* hw_init of IP block <psp> failed -22",
            "the driver could not start a chip",
            "kernel log",
        ),
        (
            "amdgpu 0000:c5:00.0: amdgpu: Fatal error during GPU init",
            "the driver could not start a chip",
            "chip 0000:c5:00.0",
        ),
    ],
)
def test_what_the_kernel_says(line, what, where):
    log = f"amdgpu: Topology: Add CPU node\n{line}\n"
    _unlisted, finding = found(replace(WHOLE, kernel_log=log, chips=(*CHIPS, "0000:c5:00.0")))
    assert finding[0].startswith(what)
    assert finding[1] == where
    # Of chips that work it is what was mended since, or firmware that is optional.
    assert found(replace(WHOLE, kernel_log=log.replace("0000:c5", "0000:85"))) == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("GPU reset(4) failed", "The driver could not reset the chip"),
        ("GPU lost from the bus", "The chip no longer answers on PCIe"),
        ("uncorrectable hardware error (ERREVENT_ATHUB_INTERRUPT) detected!", "Uncorrectable error; the driver resets"),
        # A new start of the instance ends it.
        ("2 uncorrectable hardware errors detected in total in umc block", ""),
    ],
)
def test_the_catalogue_of_faults_decides_what_a_record_means(line, what):
    book = FaultBook.from_document(faults_of_host("rocm"))
    recording = replace(WHOLE, kernel_log=f"amdgpu 0000:0c:00.0: amdgpu: {line}")
    found = [(finding.what, finding.where) for finding in check_driver(recording, "6.14.14", True, book)]
    assert [where for _what, where in found] == (["chip 0000:0c:00.0"] if what else [])
    assert all(words.startswith(f"kernel log since the last boot: {what}") for words, _where in found)


@pytest.mark.parametrize(
    ("code", "chip", "what", "where", "action"),
    [
        ("30", CHIPS[0], "AFID 30 since the last boot: Other fatal error", f"chip {CHIPS[0]}", "reset the chip with"),
        ("14", "", "AFID 14 since the last boot: Fatal error on PCIe", "error records", "reboot, or switch"),
        ("19", CHIPS[0], "AFID 19 since the last boot: More bad pages", f"chip {CHIPS[0]}", "have the chip replaced"),
        # They take nothing out of service.
        ("22", CHIPS[0], "", "", ""),
        ("none", CHIPS[0], "", "", ""),
        ("9999", CHIPS[0], "", "", ""),
    ],
)
def test_the_catalogue_of_faults_decides_what_an_error_record_means(code, chip, what, where, action):
    book = FaultBook.from_document(faults_of_host("rocm"))
    recording = replace(WHOLE, errors=(ErrorRecord(chip, 50.0, "FATAL", (code,)),) * 2)
    found = check_driver(recording, "6.14.14", True, book)
    assert len(found) == bool(what)
    for finding in found:
        assert finding.what.startswith(what) and finding.where == where and finding.action.startswith(action)


def test_an_error_record_is_over_when_the_driver_has_reset_the_chip():
    book = FaultBook.from_document(faults_of_host("rocm"))
    recording = replace(WHOLE, errors=(ErrorRecord(CHIPS[0], 50.0, "FATAL", ("30",)),), resets={CHIPS[0]: 60.0})
    assert check_driver(recording, "6.14.14", True, book) == []


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:0c:00.0: amdgpu: GPU reset(4) succeeded!",
        "amdgpu 0000:0c:00.0: amdgpu: 12 correctable hardware errors detected in total in umc block",
        "[drm] amdgpu version: 6.16.13",
        "amdgpu 0000:0c:00.0: [drm:amdgpu_ring_test_helper] ring gfx uses VM inv eng 0 on hub 0",
    ],
)
def test_what_the_kernel_says_and_is_no_harm(line):
    assert found(replace(WHOLE, kernel_log=line)) == []


@pytest.mark.parametrize(
    ("modes", "shown"), [(("CPX", "NPS4"), "CPX/NPS4"), (("DPX", "NPS1"), "DPX/NPS1"), (("CPX", ""), "CPX")]
)
def test_a_chip_that_is_divided(modes, shown):
    what, where, action = only(partitions={CHIPS[0]: ("SPX", "NPS1"), CHIPS[1]: modes})
    assert what == f"it is in {shown}, and plans are for whole chips: programs see other devices than planned"
    assert where == f"chip {CHIPS[1]}"
    # AMD's page: a mode of memory takes effect when the driver is loaded again, one of compute at once.
    assert action.startswith(
        "while nothing uses the chips, write NPS1 to current_memory_partition of each chip and load amdgpu again, then "
        f"write SPX to current_compute_partition (in /sys/bus/pci/devices/{CHIPS[1]}), "
    )
    assert action.endswith(f"or set accelerator_partition of the host to {shown}")
    assert found(replace(WHOLE, partitions=dict.fromkeys(CHIPS, ("SPX", "NPS1")))) == []
    assert found(replace(WHOLE, partitions={CHIPS[0]: ("SPX", "")})) == []


def test_chips_that_are_divided_as_planned():
    divided = replace(WHOLE, partitions=dict.fromkeys(CHIPS, ("CPX", "NPS4")))
    assert found(replace(divided, partition="CPX")) == found(replace(divided, partition="cpx/nps4")) == []
    assert len(found(replace(divided, partition="CPX/NPS1"))) == len(CHIPS)
    back = found(replace(WHOLE, partitions={CHIPS[0]: ("SPX", "NPS1")}, partition="CPX/NPS4"))
    assert [what for what, _where, _action in back] == [
        "it is in SPX/NPS1, and plans are for CPX/NPS4: programs see other devices than planned"
    ]
