# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever the vendors' tools and the kernel print is read or left out: no crash, and messages that can be shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.power import parse_power
from ansible_collections.baremetal.inference.plugins.module_utils.cann import counters as cann_counters
from ansible_collections.baremetal.inference.plugins.module_utils.cann import proof as cann_proof
from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import installed_of, mismatch
from ansible_collections.baremetal.inference.plugins.module_utils.cuda import counters as cuda_counters
from ansible_collections.baremetal.inference.plugins.module_utils.cuda import proof as cuda_proof
from ansible_collections.baremetal.inference.plugins.module_utils.rocm import counters as rocm_counters
from ansible_collections.baremetal.inference.plugins.module_utils.rocm import proof as rocm_proof
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.answers import parse_kfd
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    CommandResult,
    parse_dkms,
    parse_module_info,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host, Module
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.proof import describe_findings

from tests.fakes import ascend
from tests.fakes.fuzz import assert_enough, assert_presentable, cases, mutated, mutated_text, told_apart, within

FIXTURES = Path(__file__).parents[4] / "fixtures"
QUERY = (FIXTURES / "h200" / "nvidia-smi-query.csv").read_text()
REPORT = (FIXTURES / "h200" / "nvidia-smi-q.xml").read_text()
KERNEL = "6.8.0-50-generic"
NVRM_LOG = "NVRM: Xid (PCI:0000:00:06): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
AMD_LOG = "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!\n"
ADDRESS = "0000:0C:00.0"
AMD_STATIC = [
    {
        "gpu": 0,
        "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002", "target_graphics_version": "gfx942"},
        "bus": {"bdf": ADDRESS},
        "driver": {"name": "amdgpu", "version": "6.16.13"},
    }
]
AMD_METRIC = [
    {
        "gpu": 0,
        "power": {"socket_power": {"value": 741, "unit": "W"}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}, "mem": {"value": 58, "unit": "C"}},
        "pcie": {"width": 16, "replay_count": 0, "nak_sent_count": "N/A"},
        "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 0},
        "throttle": {"prochot_accumulated": 0, "ppt_violation_status": "ACTIVE"},
    }
]
ROCM_SMI = {"card0": {"Card Series": "MI300X", "GFX Version": "gfx942", "PCI Bus": ADDRESS}, "system": {"x": "1"}}
KFD = "simd_count 1216\nlocation_id 3072\ndomain 0\nvendor_id 4098\ngfx_target_version 90402\n"
MODINFO = f"filename: /lib/modules/{KERNEL}/x.ko\nversion: 6.16.13\nsrcversion: AB12\nvermagic: {KERNEL} SMP\n"
ECC = "        HBM Single Bit Error Count               : 4\n        RX Error Count                 : 991\n"
CHIP = "0000:c1:00.0"
INSTALLED = {"install": ascend.INSTALL_INFO, "driver": ascend.DRIVER_INFO, "firmware": ascend.FIRMWARE_INFO}
POWER = {
    "cuda": "0, 121.88, 700.00\n1, 98.1, 700.00\n",
    "rocm": [{"gpu": chip, "power": {"socket_power": {"value": 140, "unit": "W"}}} for chip in range(8)],
    "cann": ascend.table([CHIP, "0000:c2:00.0"]),
}


def host(driver, version):
    return Host(
        "ubuntu",
        "24.04",
        "noble",
        "x86_64",
        KERNEL,
        KERNEL,
        secure_boot=False,
        modules={driver: Module(version, "AB12")},
        dkms=(DkmsBuild(driver, version, KERNEL, "installed"),),
    )


class Nvidia:
    recording = cuda_proof.CudaRecording(
        host=host("nvidia", "580.159.04"),
        chips=("0000:00:06.0",),
        query=CommandResult(0, QUERY),
        report=CommandResult(0, REPORT),
        information={"0000:00:06.0": "Model: NVIDIA H200\nGPU Excluded: No\n"},
        disk={KERNEL: MODINFO.replace("6.16.13", "580.159.04")},
        kernel_log=NVRM_LOG,
        nvrm="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
    )
    texts = ("disk", "information", "kernel_log", "nvrm", "build_log")
    results = ("query", "report")

    @staticmethod
    def findings(recording):
        return cuda_proof.check_driver(recording)

    @staticmethod
    def counters(choose):
        return cuda_counters.parse_counters([result(choose, REPORT)], mutated_text(choose, NVRM_LOG))


class Amd:
    recording = rocm_proof.RocmRecording(
        host=host("amdgpu", "6.16.13"),
        chips=(ADDRESS.lower(),),
        shown=RocmHostState(driven=(ADDRESS.lower(),), has_module=True, disk="6.16.13"),
        amd_smi=CommandResult(0, json.dumps(AMD_STATIC)),
        rocm_smi=CommandResult(0, json.dumps(ROCM_SMI)),
        disk={KERNEL: MODINFO},
    )
    texts = ("disk", "kernel_log", "build_log")
    results = ("amd_smi", "rocm_smi")

    @staticmethod
    def findings(recording):
        return rocm_proof.check_driver(recording)

    @staticmethod
    def counters(choose):
        return rocm_counters.parse_counters(
            [result(choose, AMD_METRIC), result(choose, AMD_STATIC)], mutated_text(choose, AMD_LOG)
        )


class Huawei:
    recording = cann_proof.CannRecording(
        host=host(ascend.MODULE, "26.0.rc1"),
        chips=(CHIP,),
        table=CommandResult(0, ascend.table([CHIP])),
        cards=CommandResult(0, ascend.cards(1)),
        mapping=CommandResult(0, ascend.mapping(1)),
        boards={"0": ascend.BOARD.format(npu=0, version="26.0.rc1", firmware="9.0.0.0.205", compatibility="OK")},
        disk={KERNEL: MODINFO},
        installed=installed_of(INSTALLED, "", "", {}),
        health={"0/0": "Health Status : Alarm\nError Code : 80E01801\n"},
        dcmi=True,
    )
    texts = ("disk", "boards", "health", "build_log")
    results = ("table", "cards", "mapping")

    @staticmethod
    def findings(recording):
        return cann_proof.check_driver(recording, cann_proof.Expected(driver="26.0.RC1", cann="9.1.0"))

    @staticmethod
    def counters(choose):
        details = {CHIP: [result(choose, ECC), result(choose, ECC)]}
        return cann_counters.parse_counters(result(choose, ascend.table([CHIP])), details)


VENDORS = {"nvidia": Nvidia, "amd": Amd, "huawei": Huawei}


def result(choose, output):
    """Return the result of a command: right for the most part, in one of its streams."""
    if not isinstance(output, str):
        output = json.dumps(mutated(choose, output), default=str, skipkeys=True)
    text = mutated_text(choose, output) if choose.random() < 0.7 else output
    return CommandResult(choose.choice((0, 0, 0, 1, 124, 127)), *choose.choice(((text, ""), (text, text), ("", text))))


def changed(choose, vendor):
    """Return a recording in which some of the texts are changed."""
    changes = {}
    for name in vendor.texts:
        value = getattr(vendor.recording, name, None)
        if isinstance(value, str):
            changes[name] = mutated_text(choose, value)
        elif isinstance(value, tuple):
            changes[name] = tuple(mutated_text(choose, text) for text in value)
        elif value is not None:
            changes[name] = {key: mutated_text(choose, text) for key, text in value.items()}
    results = {name: result(choose, getattr(vendor.recording, name).out) for name in vendor.results}
    both = {**changes, **results}
    return replace(vendor.recording, **{name: both[name] for name in both if choose.random() < 0.4})


@pytest.mark.parametrize("name", VENDORS)
def test_whatever_the_tools_print_the_driver_is_judged(name):
    vendor = VENDORS[name]
    for label, choose in cases(f"driver-{name}", 300):
        with told_apart(label):
            recording = changed(choose, vendor)
            findings = within(60, lambda recording=recording, vendor=vendor: vendor.findings(recording))
            if findings:
                assert_presentable(describe_findings(findings))
                for finding in findings:
                    assert all(text.isprintable() for text in finding.as_dict().values())


@pytest.mark.parametrize("name", VENDORS)
def test_whatever_the_tools_count_it_is_numbers_or_a_problem(name):
    counted = 0
    for label, choose in cases(f"counters-{name}", 400):
        with told_apart(label):
            answer = within(60, lambda choose=choose, vendor=VENDORS[name]: vendor.counters(choose))
            if answer.problem:
                assert_presentable(answer.problem)
            counted += bool(answer.chips)
            json.dumps([chip.as_dict() for chip in answer.chips], allow_nan=False)
    assert_enough(counted, 50, "counted")


def measurement(choose, output):
    if isinstance(output, str):
        return mutated_text(choose, output)
    return json.dumps(mutated(choose, output), default=str, skipkeys=True)


@pytest.mark.parametrize("stack", sorted(POWER))
def test_whatever_the_tools_measure_it_is_watts_or_nothing(stack):
    measured = 0
    for label, choose in cases(f"power-{stack}", 400):
        with told_apart(label):
            text = measurement(choose, POWER[stack])
            found = within(60, lambda text=text: parse_power(stack, text, [0]))
            if found is not None:
                measured += 1
                json.dumps(vars(found), allow_nan=False)
    assert_enough(measured, 50, "measured")


def test_whatever_the_other_texts_of_a_host_hold_they_are_read():
    for label, choose in cases("host-texts", 400):
        with told_apart(label):
            texts = {name: mutated_text(choose, text) for name, text in INSTALLED.items()}
            cann = {"toolkit": mutated_text(choose, ascend.TOOLKIT_INFO)}
            board = mutated_text(choose, ascend.BOARD)
            installed = within(60, lambda: installed_of(texts, "", board, cann))  # noqa: B023 - runs at once
            mismatch(installed)
            parse_kfd([mutated_text(choose, KFD)])
            parse_module_info(mutated_text(choose, MODINFO))
            parse_dkms(mutated_text(choose, f"amdgpu/6.16.13, {KERNEL}, x86_64: installed\n"))
