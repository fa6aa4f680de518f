# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin and modules as a user runs them, on this machine with trees and tools of other hosts."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail

from tests.fakes.actions import play_by_ansible, run_action, run_play
from tests.fakes.nvidia import add_process, tool, write
from tests.fakes.rocm_tree import (
    CHIPS,
    KERNEL,
    KERNEL_PACKAGES,
    PACKAGE,
    VERSION,
    dpkg,
    mi300x_host,
)
from tests.fakes.sysfs import write_procfs

BOOT = "proc/sys/kernel/random/boot_id"
MARK = "var/lib/baremetal-rocm/rebooted"
PLAY = """
- hosts: all
  gather_facts: false
  environment:
    PATH: "{{ tree }}/bin:/usr/bin:/bin"
  tasks:
    - block:
        - baremetal.inference.accelerator_info:
            sysfs_root: "{{ tree }}/sys"
            proc_root: "{{ tree }}/proc"
        - baremetal.inference.driver_plan:
            stack: rocm
            detected: "{{ ansible_facts.accelerator_detected }}"
            release: "{{ release | default('0.33.0') }}"
            release_path: ["{{ releases }}"]
            policy: "{{ policy | default('retain') }}"
            source: "{{ source | default('vendor') }}"
            version: "{{ version | default('') }}"
            users: "{{ users | default([]) }}"
            iommu_pt: "{{ iommu_pt | default(false) }}"
            blacklist_remove: "{{ blacklist_remove | default(false) }}"
            reboot_allowed: "{{ allowed | default(false) }}"
            resolve: "{{ resolve | default(false) }}"
            root: "{{ tree }}"
            sysfs_root: "{{ tree }}/sys"
            proc_root: "{{ tree }}/proc"
          register: planned
"""
MADISON = " {} | {} | https://repo.radeon.com/amdgpu/31.50/ubuntu noble/main\n"
EXACT = {"amdgpu-dkms": "1:7.1.3.31500000-2390945.24.04", "amdgpu-dkms-firmware": "31.50.0.0.31500000-2390945.24.04"}
REPLACED = f"the loaded driver is {VERSION}, 31.50 (ROCm 10.0.0) takes its place"


def repositories(tree):
    """Have AMD's repository in reach."""
    answers = [(f"'madison {name}'", 0, MADISON.format(name, version), "") for name, version in EXACT.items()]
    tool(tree / "bin", "apt-cache", *answers)


def without_driver(tree):
    """A host before any driver came."""
    for name in ("version", "srcversion"):
        (tree / "sys/module/amdgpu" / name).unlink()
    (tree / "sys/module/amdgpu").rmdir()
    dpkg(tree, *KERNEL_PACKAGES)
    tool(tree / "bin", "apt-mark", ("showhold", 0, "", ""))
    repositories(tree)
    tool(tree / "bin", "dkms", ("status", 0, "", ""))


def with_the_kernels_own(tree):
    (tree / "sys/module/amdgpu/version").unlink()
    dpkg(tree, *KERNEL_PACKAGES)


def upgradable(tree):
    repositories(tree)


def under_programs(tree):
    upgradable(tree)
    add_process(tree, 4242, "python3", "jupyter.service", "/dev/kfd")


def under_vllm(tree):
    upgradable(tree)
    add_process(tree, 4242, "python3", "vllm@chat.service", "/dev/kfd")
    tool(tree / "bin", "systemctl", ("list-units*", 0, "vllm@chat.service loaded active running vLLM\n", ""))


def blacklisted(tree):
    write(tree / "etc/modprobe.d/cloud.conf", "blacklist amdgpu\n")


def rebooted(tree):
    write(tree / "sys/module/amdgpu/srcversion", "OLD\n")
    write(tree / MARK, f"the boot before\nthe loaded driver is {VERSION}, the installed one is {PACKAGE[:16]}\n")


def unheld(tree):
    tool(tree / "bin", "apt-mark", ("showhold", 0, "amdgpu-dkms\n", ""))


UPGRADE = {"policy": "install", "version": "10.0.0", "resolve": True}
# Of each host: what makes it what it is, and what its inventory says.
HOSTS = {
    "settled": (lambda tree: None, {}),
    "unheld": (unheld, {}),
    "fresh": (without_driver, {"resolve": True}),
    "named": (without_driver, {"release": "named"}),
    "named_by_both": (without_driver, {"release": "named", "version": "10.2.0"}),
    "nameless": (without_driver, {"release": "nameless"}),
    "nameless_settled": (lambda tree: None, {"release": "nameless"}),
    "unknown": (lambda tree: None, {"version": "9.9.9"}),
    "gone": (without_driver, {"resolve": True, "version": "7.14.0"}),
    "own": (with_the_kernels_own, {}),
    "own_accepted": (with_the_kernels_own, {"source": "distro"}),
    "too_old": (lambda tree: None, {"release": "next"}),
    "upgrade": (upgradable, UPGRADE),
    "upgrade_allowed": (upgradable, {**UPGRADE, "allowed": True}),
    "under_programs": (under_programs, {**UPGRADE, "allowed": True}),
    "under_vllm": (under_vllm, UPGRADE),
    "blacklisted": (blacklisted, {}),
    "unlisted": (blacklisted, {"blacklist_remove": True}),
    "iommu": (lambda tree: None, {"iommu_pt": True, "allowed": True}),
    "users": (lambda tree: None, {"users": ["mia"]}),
    "rebooted": (rebooted, {"allowed": True}),
}
STACK = 'stacks: {{rocm: {{runtime: container, image: "example/vllm:1", entrypoint: image{}}}}}\n'
RELEASES = {
    "next": ', rocm: "10.0.0", minimum_driver: "7.1.3"',
    "named": ', rocm: "10.2.0", amdgpu: "31.60"',
    "nameless": "",
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Make all hosts; return their variables."""
    root = tmp_path_factory.mktemp("fleet")
    for name, words in RELEASES.items():
        write(root / f"releases/{name}.yml", 'vllm: "0.99.0"\n' + STACK.format(words))
    hosts = {}
    for name, (make, variables) in HOSTS.items():
        tree = root / name
        # The processor's files first, as their writer makes the directory.
        write_procfs(tree / "proc", cpuinfo="processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t: avx2\n")
        mi300x_host(tree)
        write(tree / BOOT, "this boot\n")
        make(tree)
        hosts[name] = {**variables, "tree": str(tree), "releases": str(root / "releases")}
    return hosts


@pytest.fixture(scope="module")
def fleet(hosts):
    """Return what each host got."""
    return {name: run_play(PLAY, name, variables) for name, variables in hosts.items()}


def test_ansible_comes_to_the_same(hosts, fleet, tmp_path):
    found = play_by_ansible(tmp_path, PLAY, {name: hosts[name] for name in ("fresh", "too_old")})
    assert found == {name: fleet[name] for name in found}


def planned(fleet, name):
    assert fleet[name]["failure"] is None
    return fleet[name]["planned"]


def steps(fleet, name):
    """The parts of a plan that are not empty."""
    return {key: value for key, value in planned(fleet, name)["plan"].items() if value}


def test_a_host_on_which_all_is_done_has_nothing_to_do(fleet):
    result = planned(fleet, "settled")
    assert (result["changes"], result["manager"], result["no_reboot"]) == (False, "apt", None)
    assert result["driver"] == {"version": VERSION, "loaded": True}
    assert result["minimum_driver"] == "6.14.14"
    assert result["chips"] == list(CHIPS)
    assert steps(fleet, "nameless_settled") == {}


def test_only_what_is_missing_is_in_the_plan(fleet):
    assert steps(fleet, "unheld") == {"hold": ["amdgpu-dkms-firmware"]}
    assert steps(fleet, "users") == {"users": [planned(fleet, "users")["plan"]["users"][0]]}
    assert planned(fleet, "users")["plan"]["users"][0]["groups"] == ["render", "video"]


def test_a_fresh_host(fleet):
    plan = steps(fleet, "fresh")
    assert set(plan) == {"repositories", "packages", "finish"}
    assert plan["packages"] == [f"{name}={version}" for name, version in EXACT.items()]
    assert plan["finish"] == [["update-initramfs", "-u", "-k", "all"], ["modprobe", "amdgpu"]]
    key = "/etc/apt/keyrings/baremetal-radeon.asc"
    url = "https://repo.radeon.com/amdgpu/31.50/ubuntu"
    assert plan["repositories"] == [
        {
            "key": "https://repo.radeon.com/rocm/rocm.gpg.key",
            "key_path": key,
            "path": "/etc/apt/sources.list.d/baremetal-amdgpu-31.50.sources",
            "content": f"Types: deb\nURIs: {url}\nSuites: noble\nComponents: main\nSigned-By: {key}\n",
        }
    ]
    for name in ("named", "named_by_both"):
        assert "/amdgpu/31.60/ubuntu" in steps(fleet, name)["repositories"][0]["content"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "too_old",
            "too_old: driver 6.16.13.30300300 is on the host, release next needs 7.1.3 or newer, and rocm_policy",
        ),
        ("gone", "gone: the repository has no amdgpu-dkms of driver 31.40.1 (ROCm 7.14.0); it has 7.1.3.31500000;"),
        ("unknown", "unknown: the driver of ROCm 9.9.9 is not known; known releases are 6.4.0, 6.4.1,"),
        ("nameless", "nameless: release 'nameless' names no version of ROCm, and a driver is to be installed; set"),
        (
            "blacklisted",
            "blacklisted: /etc/modprobe.d/cloud.conf line 1 disables amdgpu (blacklist amdgpu), so the",
        ),
        (
            "under_programs",
            f"under_programs: driver {VERSION} is to be replaced, and process 4242 (python3 of jupyter.service) has "
            "/dev/kfd open",
        ),
    ],
)
def test_what_cannot_be_had_is_an_error_of_the_host(fleet, name, sentence):
    assert fleet[name]["failure"].startswith(sentence)


def test_an_upgrade_unloads_the_driver_and_reboots_only_where_that_is_allowed(fleet):
    plan = steps(fleet, "upgrade_allowed")
    assert plan["packages"] == [f"{name}={version}" for name, version in EXACT.items()]
    assert (plan["unload"], plan["reboot"]) == (["amdgpu"], [REPLACED])
    assert planned(fleet, "upgrade_allowed")["no_reboot"] is None
    refused = planned(fleet, "upgrade")["no_reboot"]
    assert refused.startswith(f"a reboot is needed ({REPLACED}), and rocm_reboot_allowed is false")


def test_instances_are_stopped_first(fleet):
    assert steps(fleet, "under_vllm")["stop"] == ["vllm@chat.service"]


def test_the_kernels_own_driver(fleet):
    plan = steps(fleet, "own")
    assert plan["unload"] == ["amdgpu"]
    assert plan["reboot"] == [f"the loaded driver is of kernel {KERNEL}, 31.50 (ROCm 10.0.0) takes its place"]
    accepted = planned(fleet, "own_accepted")
    assert accepted["minimum_driver"] == ""
    assert accepted["plan"]["packages"] == ["linux-firmware"]
    assert any("has no version" in warning for warning in accepted["warnings"])


def test_a_line_that_keeps_the_driver_out_is_taken_out(fleet):
    (file,) = steps(fleet, "unlisted")["files"]
    assert file["path"] == "/etc/modprobe.d/cloud.conf"
    assert file["content"] == "# taken out by the role rocm: blacklist amdgpu\n"


def test_kernel_parameters_wait_for_their_reboot(fleet):
    plan = steps(fleet, "iommu")
    assert [file["path"] for file in plan["files"]] == ["/etc/default/grub.d/baremetal-rocm.cfg"]
    assert plan["finish"] == [["update-grub"]]
    assert plan["reboot"] == ["the kernel's command line has no amd_iommu=on iommu=pt yet"]
    assert "stop" not in plan


def test_no_host_is_rebooted_twice_for_the_same_reason(fleet):
    assert planned(fleet, "rebooted")["no_reboot"].startswith(
        "the host was already rebooted for this, without success: "
    )


@pytest.mark.parametrize("option", ["mirror", "epel_mirror"])
def test_a_mirror_with_a_password_is_refused_before_the_host_is_asked(option):
    options = {"detected": {}, "release": "0.33.0", option: "https://site:geheim@mirror/rocm"}
    with pytest.raises(AnsibleActionFail, match=rf"^gpu-1: rocm_{option}: found an address with") as caught:
        run_action("driver_plan", {"stack": "rocm", **options}, {"inventory_hostname": "gpu-1"})
    assert "geheim" not in str(caught.value)


def test_an_option_of_another_stack_is_refused_before_the_host_is_asked():
    options = {"stack": "rocm", "detected": {}, "release": "0.33.0", "licence_accepted": True}
    with pytest.raises(
        AnsibleActionFail, match="licence_accepted: found with stack rocm; it is an option of stack cann"
    ):
        run_action("driver_plan", options, {"inventory_hostname": "gpu-1"})
