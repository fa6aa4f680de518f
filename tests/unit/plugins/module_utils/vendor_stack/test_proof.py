# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a driver, whoever made it: the module, the next boot, holds, the chips' faults."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import TIMED_OUT, CommandResult
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import FaultBook
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host, Module
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.proof import (
    DriverKind,
    Finding,
    check_builds,
    check_exit,
    check_holds,
    check_log,
    check_minimum,
    check_states,
    describe_findings,
    known_errors,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

NVIDIA = DriverKind("cuda", "nvidia", "nvidia", lambda name: name.startswith("nvidia-"), "NVRM")
NOW, NEXT = "6.1.0-28-amd64", "6.1.0-30-amd64"
BOOK = FaultBook.from_document(faults_of_host("cuda"))


def host(loaded="580.95.05", srcversion=None, kernels=(NOW, NOW), **more):
    modules = {"nvidia": Module(loaded, srcversion)} if loaded else {}
    return Host("debian", "12", "bookworm", "x86_64", *kernels, modules=modules, **more)


def module(version="580.95.05", kernel=NOW, srcversion="A1"):
    return f"filename: /lib/nvidia.ko\nversion: {version}\nsrcversion: {srcversion}\nvermagic: {kernel} SMP\n"


def whats(findings):
    return [finding.what for finding in findings]


def test_a_driver_that_is_loaded_and_on_disk_has_no_fault():
    assert list(check_builds(NVIDIA, host(srcversion="A1"), {NOW: module()})) == []


@pytest.mark.parametrize(
    ("found", "disk", "what"),
    [
        (host(), {NOW: module("590.1")}, "driver 580.95.05 is loaded, 590.1 is on disk"),
        (host(srcversion="B2"), {NOW: module()}, "the driver that is loaded (srcversion B2) is another build"),
        (host(), {}, "the next load of the driver fails: there is no module for kernel 6.1.0-28-amd64"),
        (host(None), {}, "no driver is loaded: there is no module for kernel 6.1.0-28-amd64"),
        (host(None), {NOW: module()}, "driver 580.95.05 is on disk and not loaded"),
        (host(None, secure_boot=True), {NOW: module()}, "Secure Boot is on and the key that DKMS signs with"),
        (host(), {NOW: module(kernel="6.1.0-27-amd64")}, "was built for 6.1.0-27-amd64"),
        (host(kernels=(NOW, NEXT)), {NOW: module()}, "the next boot has no driver: there is no module for kernel"),
        (
            host(kernels=(NOW, NEXT)),
            {NOW: module(), NEXT: module("590.1", NEXT)},
            "the next boot loads driver 590.1, and 580.95.05 with its tools is in use",
        ),
    ],
)
def test_each_way_in_which_a_module_does_not_fit_is_one_finding(found, disk, what):
    (said,) = whats(check_builds(NVIDIA, found, disk))
    assert what in said


@pytest.mark.parametrize(
    ("more", "action"),
    [
        ({}, "install the driver for this kernel"),
        (
            {"dkms": (DkmsBuild("nvidia", "580", "", "added"),)},
            f"install linux-headers-{NOW}, then run 'dkms autoinstall -k {NOW}'; if that fails, read /var/lib/dkms/",
        ),
        (
            {"dkms": (DkmsBuild("nvidia", "580", "", "added"),), "packages": {f"linux-headers-{NOW}": "1"}},
            f"run 'dkms autoinstall -k {NOW}'",
        ),
    ],
)
def test_how_a_missing_module_is_built(more, action):
    (finding,) = check_builds(NVIDIA, host(None, **more), {})
    if action.startswith("run"):
        assert finding.action.startswith(action)
    assert action in finding.action


def test_the_end_of_a_failed_build_is_said():
    (finding,) = check_builds(NVIDIA, host(None), {}, "cc: error\nstop\n")
    assert finding.action.endswith("; the last build ended with: cc: error; stop")


@pytest.mark.parametrize(("minimum", "old"), [("", False), ("580.95.05", False), ("580.82", False), ("590", True)])
def test_a_driver_that_is_too_old_for_the_release_is_named(minimum, old):
    assert bool(list(check_minimum(NVIDIA, host(), minimum))) is old
    assert list(check_minimum(NVIDIA, host(None), minimum)) == []


def test_packages_that_an_upgrade_may_replace_are_named_with_the_command():
    packages = {"nvidia-smi": "1", "nvidia-driver": "1", "bash": "1"}
    (finding,) = check_holds(NVIDIA, host(packages=packages, holds=("nvidia-smi",)))
    assert (finding.where, finding.action) == ("nvidia-driver", "run 'apt-mark hold nvidia-driver'")
    assert list(check_holds(NVIDIA, host(packages=packages, holds=("nvidia-smi", "nvidia-driver")))) == []


def test_a_tool_that_hangs_or_fails_is_a_finding():
    assert list(check_exit("nvidia-smi", CommandResult(0), "NVRM")) == []
    assert whats(check_exit("nvidia-smi", CommandResult(TIMED_OUT), "NVRM")) == ["nvidia-smi does not finish"]
    (said,) = whats(check_exit("nvidia-smi", CommandResult(9, "out\n", "a\nUnknown Error\n"), "NVRM"))
    assert said == "nvidia-smi ends with exit status 9; it prints: Unknown Error"
    errors = [("Driver/library version mismatch", "tools are newer", "reboot"), ("absent", "x", "y")]
    answer = CommandResult(18, "", "Failed: Driver/library version mismatch")
    assert known_errors(errors, answer) == [("tools are newer", "reboot")]


def test_a_state_that_takes_no_chip_out_is_a_warning():
    texts = ["the NVLink fabric is unhealthy", "the NVLink fabric has a limited capacity"]
    found = list(check_states(BOOK, texts, "chip 0", "reset it"))
    assert [finding.later for finding in found] == [False, True]
    # Without a catalogue nobody knows, so it counts.
    assert not next(check_states(FaultBook({}), texts, "chip 0", "reset it")).later


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        # What a program caused keeps no host from serving.
        (31, None),
        (79, "reboot, or switch the machine off and on; if it returns, check power, seat and temperature"),
        (95, "reset the chip with 'nvidia-smi -r', or reboot if the driver records no reset"),
    ],
)
def test_faults_of_a_chip_since_the_boot_are_named_with_what_ends_them(xid, action):
    log = f"user: made up\nNVRM: Xid (PCI:0000:5d:00): {xid}, pid=7, text\n"
    found = [(each.where, each.action) for each in check_log(BOOK, log, "nvidia-smi -r")]
    assert found == ([("chip 0000:5d:00.0", action)] if action else [])


def test_a_message_shows_no_control_characters_of_a_tool():
    text = describe_findings([Finding("a\x1b[31m\nb", "chip 0", "reset it"), Finding("c", "d", "e")])
    assert text.isprintable() and text.startswith("chip 0: a") and text.endswith("; reset it. d: c; e.")
    assert describe_findings([]) == ""
