# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin and modules as a user runs them, on this machine with trees and tools of hosts with Ascend chips."""

from __future__ import annotations

import os

import pytest

from tests.fakes.actions import play_by_ansible, run_play
from tests.fakes.ascend import DRIVER_INFO, FIRMWARE_INFO, KERNEL, MODULE, VERSION, atlas_host, npu_smi
from tests.fakes.nvidia import add_process, tool, write
from tests.fakes.sysfs import write_procfs

BOOT = "proc/sys/kernel/random/boot_id"
RELEASES = {
    "ours": '{image: "example/vllm:1", runtime: container, cann: "9.1.0", hdk: 26.0.RC1, firmware: 9.0.0.0.205}',
    "plain": '{image: "example/vllm:1", runtime: container, cann: "9.1.0", hdk: 26.0.RC1}',
    "unknown": '{image: "example/vllm:1", runtime: container, cann: "9.0.0"}',
}
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
            stack: cann
            detected: "{{ ansible_facts.accelerator_detected }}"
            release: "{{ release | default('ours') }}"
            release_path: ["{{ releases }}"]
            policy: "{{ policy | default('retain') }}"
            version: "{{ version | default('') }}"
            driver_version: "{{ driver | default('') }}"
            run_files: "{{ files | default([]) }}"
            licence_accepted: "{{ licence | default(true) }}"
            toolkit: "{{ toolkit | default(false) }}"
            reboot_allowed: "{{ allowed | default(false) }}"
            resolve: "{{ resolve | default(false) }}"
            root: "{{ tree }}"
            sysfs_root: "{{ tree }}/sys"
            proc_root: "{{ tree }}/proc"
          register: planned
"""
PACKAGES = ("ascend910b-driver", "ascend910b-firmware")


def fresh(tree):
    """A host before anything of Huawei's came."""
    for path in ("etc/ascend_install.info", "usr/local/Ascend/driver/version.info", f"sys/module/{MODULE}/srcversion"):
        (tree / path).unlink()
    (tree / f"sys/module/{MODULE}").rmdir()
    (tree / "usr/local/Ascend/firmware/version.info").unlink()
    write(tree / "etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    write(tree / "etc/group", "root:x:0:\n")
    (tree / "bin/npu-smi").unlink()
    kernel_only = f"ii \tlinux-image-{KERNEL}\t1\nii \tlinux-image-generic\t1\n"
    tool(tree / "bin", "dpkg-query", ("--show*", 0, kernel_only, ""))
    tool(tree / "bin", "apt-mark", ("showhold", 0, "", ""))
    tool(tree / "bin", "dkms", ("status", 0, "", ""))
    madison = "".join(
        f" {name} | {version} | https://example Packages\n"
        for name, versions in zip(PACKAGES, (("26.0.rc1-1", "25.5.1"), ("9.0.0.0.205",)))
        for version in versions
    )
    answers = [
        (f"'madison {name}'", 0, "".join(x for x in madison.splitlines(True) if name in x), "") for name in PACKAGES
    ]
    tool(tree / "bin", "apt-cache", *answers)


def older(tree):
    """A host on which the row before is installed, by packages."""
    driver = DRIVER_INFO.replace(VERSION, "25.5.1").replace("[7.0.0,9.9.99]", "[7.0.0,8.9.9]")
    write(tree / "usr/local/Ascend/driver/version.info", driver)
    firmware = FIRMWARE_INFO.replace("9.0.0.0.205", "7.8.0.6.201").replace(VERSION, "25.5.1")
    write(tree / "usr/local/Ascend/firmware/version.info", firmware)
    addresses = sorted(path.name for path in (tree / "sys/bus/pci/devices").iterdir())
    npu_smi(tree / "bin", addresses, version="25.5.1", firmware="7.8.0.6.201")


def serving(tree):
    older(tree)
    tool(
        tree / "bin",
        "systemctl",
        ("list-units*", 0, "vllm@chat.service loaded active running x\n", ""),
        ("*", 0, "", ""),
    )
    add_process(tree, 4242, "VLLM::EngineCor", "docker-0a1b2c.scope", "/dev/davinci0")


def training(tree):
    older(tree)
    add_process(tree, 5000, "python3", "user@1000.service", "/dev/davinci3")


def not_loaded(tree):
    (tree / f"sys/module/{MODULE}/srcversion").unlink()
    (tree / f"sys/module/{MODULE}").rmdir()


INSTALL = {"policy": "install"}
SHA = "0" * 64
FILES = [
    {"url": f"https://files.example/{name}", "sha256": SHA}
    for name in (
        "Ascend-hdk-910b-npu-driver_26.0.rc1_linux-x86-64.run",
        "Ascend-hdk-910b-npu-driver_26.0.rc1_linux-aarch64.run",
        "Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run",
    )
]
# Of each host: what makes it what it is, and what its inventory says.
HOSTS = {
    "settled": (lambda tree: None, {}),
    "fresh": (fresh, {"resolve": True}),
    "files": (fresh, {"files": FILES}),
    "half_sum": (fresh, {"files": [{"url": FILES[0]["url"], "sha256": ""}]}),
    "no_licence": (fresh, {"licence": False}),
    "gone": (fresh, {"resolve": True, "driver": "26.1.1"}),
    "no_row": (fresh, {"release": "unknown"}),
    "no_cann": (fresh, {"release": "0.33.0"}),
    "plain": (fresh, {"release": "plain"}),
    "older": (older, {}),
    "upgrade": (older, INSTALL),
    "upgrade_allowed": (older, {**INSTALL, "allowed": True}),
    "serving": (serving, {**INSTALL, "allowed": True}),
    "training": (training, {**INSTALL, "allowed": True}),
    "not_loaded": (not_loaded, {}),
    "toolkit": (lambda tree: None, {"toolkit": True}),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Make all hosts; return their variables."""
    root = tmp_path_factory.mktemp("fleet")
    for name, stack in RELEASES.items():
        write(root / f"releases/{name}.yml", f'vllm: "0.99.0"\nstacks: {{cann: {stack}}}\n')
    hosts = {}
    for name, (make, variables) in HOSTS.items():
        tree = root / name
        # The processor's files first, as their writer makes the directory.
        write_procfs(tree / "proc")
        atlas_host(tree)
        write(tree / BOOT, "this boot\n")
        make(tree)
        hosts[name] = {**variables, "tree": str(tree), "releases": str(root / "releases")}
    return hosts


@pytest.fixture(scope="module")
def fleet(hosts):
    """Return what each host got."""
    return {name: run_play(PLAY, name, variables) for name, variables in hosts.items()}


def test_ansible_comes_to_the_same(hosts, fleet, tmp_path):
    found = play_by_ansible(tmp_path, PLAY, {name: hosts[name] for name in ("fresh", "older")})
    assert found == {name: fleet[name] for name in found}


def planned(fleet, name):
    assert fleet[name]["failure"] is None
    return fleet[name]["planned"]


def test_a_host_on_the_row_has_nothing_to_do(fleet):
    result = planned(fleet, "settled")
    assert result["changes"] is False
    assert not any(result["plan"].values())
    assert (result["driver"], result["minimum_driver"], result["cann_version"]) == (
        {"version": VERSION},
        "26.0.RC1",
        "9.1.0",
    )
    assert result["nodes"][-1] == "/dev/davinci7"
    assert result["no_reboot"] is None


def test_a_fresh_host_gets_exact_versions(fleet):
    result = planned(fleet, "fresh")
    plan = result["plan"]
    assert plan["packages"][-2:] == ["ascend910b-driver=26.0.rc1-1", "ascend910b-firmware=9.0.0.0.205"]
    # What others are built with comes at once, then each in its order.
    assert result["batches"] == [plan["packages"][:-2], plan["packages"][-2:-1], plan["packages"][-1:]]
    assert [group["name"] for group in plan["groups"]] == ["HwHiAiUser"]
    assert [user["home"] for user in plan["users"]] == ["/home/HwHiAiUser"]
    (repository,) = plan["repositories"]
    assert repository["key"].endswith("/cann-keyring_1.0.0_all.deb")
    assert repository["key_path"] == "/usr/share/keyrings/cann-archive-keyring.gpg"
    assert (plan["stop"], plan["installers"], plan["reboot"], plan["hold"]) == ([], [], [], [])


def test_files_of_this_hosts_architecture(fleet):
    arch = {"x86_64": "x86-64"}.get(os.uname().machine, os.uname().machine)
    plan = planned(fleet, "files")["plan"]
    assert [one["name"] for one in plan["installers"]] == [
        f"Ascend-hdk-910b-npu-driver_26.0.rc1_linux-{arch}.run",
        "Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run",
    ]
    assert plan["installers"][0]["argv"] == [
        f"/var/lib/baremetal-cann/Ascend-hdk-910b-npu-driver_26.0.rc1_linux-{arch}.run",
        "--full",
        "--install-for-all",
        "--quiet",
    ]
    assert plan["repositories"] == []


def test_firmware_that_no_release_names_is_left_alone(fleet):
    result = planned(fleet, "plain")
    assert "firmware" not in " ".join(result["plan"]["packages"])
    assert "release plain names no firmware, so it stays unchanged" in result["warnings"]


def test_what_runs_on_the_chips_stops_first(fleet):
    plan = planned(fleet, "serving")["plan"]
    assert plan["stop"] == ["vllm@chat.service"]
    assert plan["packages"] == ["ascend910b-firmware=9.0.0.0.205", "ascend910b-driver=26.0.rc1"]
    assert planned(fleet, "upgrade_allowed")["no_reboot"] is None


def test_what_is_not_loaded_needs_a_reboot(fleet):
    result = planned(fleet, "not_loaded")
    reason = f"driver {VERSION} is installed and not loaded"
    assert result["plan"]["reboot"] == [reason]
    assert result["no_reboot"].startswith(f"a reboot is needed ({reason}), and cann_reboot_allowed is false")
    assert result["mark"] == {"path": "/var/lib/baremetal-cann/rebooted", "content": f"this boot\n{reason}\n"}


def test_cann_itself_where_it_is_wanted(fleet):
    result = planned(fleet, "toolkit")
    assert result["plan"]["packages"] == [
        "ascend-cann-toolkit=9.1.0",
        "ascend-cann-910b-ops=9.1.0",
        "ascend-cann-nnal=9.1.0",
    ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "no_licence",
            "no_licence: driver 26.0.RC1, firmware 9.0.0.0.205 would be installed, and Huawei's licence for them is",
        ),
        ("half_sum", "half_sum: cann_run_files: sha256 of Ascend-hdk-910b-npu-driver_26.0.rc1_linux-x86-64.run is ''"),
        ("gone", "gone: the repository has no ascend910b-driver 26.1.1; it has 25.5.1, 26.0.rc1-1;"),
        ("no_row", "no_row: release 'unknown' names no driver (hdk); set cann_driver_version or choose another"),
        ("no_cann", "no_cann: release '0.33.0' names no version of CANN (cann); set cann_version or choose another"),
        (
            "older",
            "older: driver 25.5.1 is on the host, release ours needs 26.0.RC1 or newer with CANN 9.1.0, and cann",
        ),
        (
            "upgrade",
            "upgrade: driver 25.5.1 cannot be replaced without a reboot, and none is possible: a reboot is needed (",
        ),
        (
            "training",
            "training: driver 25.5.1 is to be replaced, and process 5000 (python3 of user@1000.service) has /dev/davin",
        ),
    ],
)
def test_what_cannot_be_had_is_an_error_of_the_host(fleet, name, sentence):
    assert fleet[name]["failure"].startswith(sentence)
