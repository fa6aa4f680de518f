# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is told beside its driver: groups, lines that keep the driver out, kernel parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import Blacklist, RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.settings import (
    GRUB_FILE,
    KEPT_OUT,
    KEPT_OUT_WORD,
    NUMA,
    Settings,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Group, User
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import plan_driver as _plan_driver

from tests.fakes.driver_plans import halting
from tests.fakes.rocm_systems import DRIVEN, MI300X, REQUEST, SYSTEMS, commands, working

plan_driver = halting(_plan_driver)


def planned(host=None, shown=DRIVEN, **settings):
    return plan_driver(host or working(), MI300X, shown, replace(REQUEST, settings=Settings(**settings)))


def test_groups_that_are_not_there():
    found = planned(working(groups={"video": ()}))
    assert (found.groups, found.users) == ((Group("render"),), ())


def test_users_that_are_in_neither_or_in_one():
    users = {"mia": "mia", "tom": "render", "vllm": "vllm"}
    host = working(groups={"render": ("vllm",), "video": ("vllm", "mia")}, users=users)
    found = planned(host, users=("mia", "tom", "vllm"))
    assert found.users == (User("mia", "mia", ("render", "video")), User("tom", "render", ("render", "video")))


def test_a_user_that_is_not_there():
    assert planned(users=("eve",)).halt == (
        "rocm_users names eve, and the host has no such user in /etc/passwd; create it first"
    )


BLACKLIST = "/etc/modprobe.d/cloud.conf"
TEXT = "# from the image\nblacklist nouveau\nblacklist amdgpu\n"
BLACKLISTED = replace(DRIVEN, blacklists=(Blacklist(BLACKLIST, 3, "blacklist amdgpu"),), blacklisting={BLACKLIST: TEXT})


@pytest.mark.parametrize("policy", ["retain", "install", "halt"])
def test_a_line_that_keeps_amdgpu_out_is_not_touched_unasked(policy):
    assert plan_driver(working(), MI300X, BLACKLISTED, replace(REQUEST, policy=policy)).halt == (
        f"{BLACKLIST} line 3 disables amdgpu (blacklist amdgpu), so the driver would not load after a "
        "reboot; delete that line, or set rocm_blacklist_remove to true"
    )


@pytest.mark.parametrize("place", [BLACKLIST, "/usr/lib/modprobe.d/cloud.conf"])
def test_a_line_that_keeps_amdgpu_out_goes_where_that_is_asked_for(place):
    shown = RocmHostState(blacklists=(Blacklist(place, 3, "blacklist amdgpu"),), blacklisting={place: TEXT})
    found = planned(shown=shown, blacklist_remove=True)
    (file,) = found.files
    assert file.path == BLACKLIST
    assert file.content == ("# from the image\nblacklist nouveau\n# taken out by the role rocm: blacklist amdgpu\n")
    assert file.in_initramfs
    by = "" if place == BLACKLIST else f", by {BLACKLIST}"
    assert f"blacklist amdgpu is removed from {place}{by}" in found.notes


@pytest.mark.parametrize(
    ("host", "command"),
    [(working(), "update-grub"), (SYSTEMS["rhel9"][0], "grub2-mkconfig -o /boot/grub2/grub.cfg")],
)
def test_a_kernel_that_is_told_to_keep_amdgpu_out(host, command):
    shown = replace(DRIVEN, blacklists=(Blacklist("", 0, "modprobe.blacklist=amdgpu"),))
    assert planned(host, shown, blacklist_remove=True).halt == (
        "the kernel's command line disables amdgpu (modprobe.blacklist=amdgpu); remove that from /etc/default/grub, "
        f"run '{command}' and reboot"
    )


@pytest.mark.parametrize(
    ("line", "keeps_out"),
    [
        ("blacklist amdgpu", True),
        ("  blacklist   amdgpu  # by the image", True),
        ("install amdgpu /bin/false", True),
        ("install amdgpu /usr/bin/true", True),
        ("#blacklist amdgpu", False),
        ("blacklist amdgpu_xyz", False),
        ("blacklist radeon", False),
        ("options amdgpu noretry=0", False),
        ("install amdgpu /sbin/modprobe --ignore-install amdgpu", False),
    ],
)
def test_which_lines_keep_amdgpu_out(line, keeps_out):
    assert bool(KEPT_OUT.match(line)) == keeps_out


@pytest.mark.parametrize(
    ("word", "keeps_out"),
    [
        ("modprobe.blacklist=amdgpu", True),
        ("modprobe.blacklist=nouveau,amdgpu,radeon", True),
        ("module_blacklist=amdgpu", True),
        ("nomodeset", True),
        ("modprobe.blacklist=nouveau", False),
        ("amdgpu.noretry=0", False),
        ("iommu=pt", False),
    ],
)
def test_which_words_keep_amdgpu_out(word, keeps_out):
    assert bool(KEPT_OUT_WORD.match(word)) == keeps_out


AMD_CPU = replace(DRIVEN, cpu_vendor="AuthenticAMD", has_grub=True, command_line="root=/dev/sda1 ro")


@pytest.mark.parametrize(
    ("vendor", "words"), [("AuthenticAMD", "amd_iommu=on iommu=pt"), ("GenuineIntel", "intel_iommu=on iommu=pt")]
)
def test_pass_through_of_the_iommu(vendor, words):
    shown = replace(AMD_CPU, cpu_vendor=vendor)
    found = planned(shown=shown, iommu_pt=True)
    (file,) = found.files
    assert (file.path, file.content) == (GRUB_FILE, f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"\n')
    assert commands(found) == ["update-grub"]
    assert found.reboot == (f"the kernel's command line has no {words} yet",)
    # No other driver comes: what runs on the chips is not stopped for it.
    assert (found.replaces, found.unload) == ("", ())
    found = planned(replace(SYSTEMS["rhel9"][0], packages={}), replace(shown, has_module=True), iommu_pt=True)
    assert f"grubby --update-kernel=ALL --args={words}" in commands(found)
    assert GRUB_FILE not in [file.path for file in found.files]


@pytest.mark.parametrize("grub", [None, "ours"])
def test_a_kernel_that_has_it_already(grub):
    shown = replace(AMD_CPU, command_line="root=/dev/sda1 amd_iommu=on iommu=pt", grub=grub)
    found = planned(shown=shown, iommu_pt=True)
    assert (found.reboot, commands(found)) == ((), [])
    assert [file.path for file in found.files] == ([GRUB_FILE] if grub else [])


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        (
            replace(AMD_CPU, has_grub=False),
            "rocm_iommu_pt is true, and the host has no GRUB (/etc/default/grub); add amd_iommu=on",
        ),
        (
            replace(AMD_CPU, cpu_vendor=""),
            "rocm_iommu_pt is true, and the host's processor is from an unknown",
        ),
    ],
)
def test_pass_through_that_cannot_be_had(shown, sentence):
    assert planned(shown=shown, iommu_pt=True).halt.startswith(sentence)


@pytest.mark.parametrize(
    ("says", "expected", "files"),
    [("1", ["sysctl -w kernel.numa_balancing=0"], (NUMA,)), ("0", [], (NUMA,)), ("", [], ())],
)
def test_numa_balancing(says, expected, files):
    found = planned(shown=replace(DRIVEN, numa_balancing=says), numa_balancing_off=True)
    assert (commands(found), found.files) == (expected, files)
    assert any("has no NUMA balancing" in note for note in found.notes) == (says == "")
    assert planned(shown=replace(DRIVEN, numa_balancing=says)).files == ()


def test_what_the_host_shows_survives_the_way_to_the_controller():
    import json

    shown = replace(BLACKLISTED, sources={"/etc/apt/sources.list.d/x.list": "deb"}, grub="text")
    assert RocmHostState.from_dict(json.loads(json.dumps(shown.as_dict()))) == shown
