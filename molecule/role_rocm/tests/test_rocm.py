# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver that was installed, what the next run makes of one that has come to harm, and an upgrade under a program."""

from __future__ import annotations

import json

import pytest

OLD, NEW = "6.19.14", "7.1.3.31500000"
# The changed variables of the play that replaces the driver.
UPGRADE = {"rocm_version": "10.0.0", "rocm_policy": "install"}
DRIVER = "dpkg-query -W 'amdgpu*' 'amdrocm*' dkms || true"


@pytest.fixture
def serving(fleet, cleaned):
    """Have an instance that serves on the chips."""
    cleaned.append("systemctl stop vllm@chat")
    fleet.serve()


def loaded(fleet):
    return set(fleet.run("cat /standin/sys/module/amdgpu/version").values())


def test_the_driver_is_there_at_one_version_and_held(fleet):
    for held in fleet.run("apt-mark showhold").values():
        assert {"amdgpu-dkms", "amdgpu-dkms-firmware"} <= set(held.split())
    assert all(line.count("31400100") == 2 for line in fleet.run("dpkg-query -W 'amdgpu-dkms*'").values())
    assert loaded(fleet) == {OLD}
    assert all("6.1.0-40-amd64, x86_64: installed" in said for said in fleet.run("dkms status").values())


def test_the_repository_is_believed_with_its_own_key_only(fleet):
    for said in fleet.run("cat /etc/apt/sources.list.d/baremetal-amdgpu-31.40.1.sources").values():
        assert "URIs: file:///srv/amd/amdgpu/31.40.1/ubuntu" in said
        assert "Signed-By: /etc/apt/keyrings/baremetal-radeon.asc" in said
        assert "Trusted" not in said
    # Debian's releases take the packages of the Ubuntu of their age.
    suites = fleet.run("grep Suites /etc/apt/sources.list.d/baremetal-amdgpu-31.40.1.sources")
    assert suites == {"cpu-12": "Suites: jammy", "cpu-13": "Suites: noble"}


def test_who_may_open_the_chips(fleet):
    for nodes in fleet.run("stat -c '%G %a %n' /dev/kfd /dev/dri/renderD*").values():
        assert {line.rsplit(" ", 1)[0] for line in nodes.splitlines()} == {"render 660"}
    for groups in fleet.run("id -nG games").values():
        assert {"render", "video"} <= set(groups.split())


def test_rocm_is_in_user_space_only_where_it_was_asked_for(fleet):
    said = fleet.run("ls /opt/rocm/core/bin/amd-smi || true")
    assert said == {"cpu-12": "/opt/rocm/core/bin/amd-smi", "cpu-13": ""}
    listed = json.loads(fleet.hosts["cpu-12"].check_output(f"{said['cpu-12']} static --asic --bus --driver --json"))
    assert len(listed["gpu_data"]) == 8


def test_tools_of_before_rocm_7_are_understood(fleet, cleaned):
    cleaned.append("rm -f /var/lib/standin/older-shape")
    fleet.run("touch /var/lib/standin/older-shape")
    done = fleet.play("--tags", "rocm_verify")
    assert done.rc == 0, done.output


@pytest.mark.long
def test_a_new_kernel_gets_its_module_before_it_boots(fleet):
    fleet.run("apt-get -qy install linux-image-6.1.0-41-amd64")
    done = fleet.play()
    assert done.rc == 0, done.output
    assert all("6.1.0-41-amd64, x86_64: installed" in said for said in fleet.run("dkms status").values())
    fleet.run("standin boot --kernel 6.1.0-41-amd64")
    done = fleet.play()
    assert (done.rc, done.changed) == (0, 0), done.output
    assert loaded(fleet) == {OLD}


@pytest.mark.long
def test_a_kernel_without_headers_is_named(fleet, cleaned):
    cleaned.append("standin boot --kernel 6.1.0-41-amd64")
    fleet.run("standin boot --kernel 6.1.0-99-amd64")
    assert fleet.play().fails_everywhere("linux-headers-6.1.0-99-amd64")


@pytest.mark.long
def test_a_package_that_is_no_longer_held_is_held_again(fleet):
    fleet.run("apt-mark unhold amdgpu-dkms-firmware")
    done = fleet.play()
    assert done.rc == 0, done.output
    assert all("amdgpu-dkms-firmware" in held.split() for held in fleet.run("apt-mark showhold").values())


def test_a_chip_that_the_driver_has_not_taken_is_found(fleet, cleaned):
    cleaned.append("standin function 0000:f1:00.0 --remove")
    fleet.hosts["cpu-12"].check_output("standin function 0000:f1:00.0 1002:74a1 --class 120000")
    fleet.hosts["cpu-13"].check_output("standin function 0000:f1:00.0 1002:7551 --class 030000")
    done = fleet.play()
    assert done.fails_everywhere("chip 0000:f1:00.0", "the driver is not bound to it")
    assert "amd-smi lists 8 of 9 chips on PCI" in done.errors["cpu-12"]
    assert "the kernel (KFD) lists 2 of 3 chips on PCI" in done.errors["cpu-13"]


def test_a_device_that_the_group_may_not_open_is_found(fleet, cleaned):
    cleaned.append("chgrp render /dev/kfd")
    fleet.run("chgrp root /dev/kfd")
    assert fleet.play().fails_everywhere("/dev/kfd: its group is root with mode 0660", "udevadm trigger")


def test_a_line_that_keeps_the_driver_out_is_named_and_taken_out_only_where_that_is_wanted(fleet, cleaned):
    path = "/etc/modprobe.d/cloud.conf"
    cleaned.append(f"rm -f {path}")
    fleet.run(f"printf '# the image\\nblacklist amdgpu\\n' >{path}")
    assert fleet.play().fails_everywhere(f"{path} line 2 disables amdgpu", "rocm_blacklist_remove")
    done = fleet.play(rocm_blacklist_remove=True)
    assert done.rc == 0, done.output
    assert set(fleet.run(f"cat {path}").values()) == {"# the image\n# taken out by the role rocm: blacklist amdgpu"}


def test_a_tool_that_finds_no_driver_is_understood(fleet, cleaned):
    cleaned.append("rm -f /var/lib/standin/amd-smi-fails")
    host = fleet.hosts["cpu-12"]
    host.check_output("echo 'ERROR: Unable to get devices, driver not initialized' >/var/lib/standin/amd-smi-fails")
    done = fleet.play(limit="cpu-12")
    assert "amd-smi fails: no driver is loaded; run 'modprobe amdgpu'" in done.errors["cpu-12"]


def test_nothing_is_installed_where_the_policy_is_to_halt(fleet):
    before = fleet.run(DRIVER)
    done = fleet.play(rocm_version="10.0.0", rocm_policy="halt")
    assert done.fails_everywhere("rocm_version asks for ROCm 10.0.0 with driver 31.50, and rocm_policy is halt")
    assert fleet.run(DRIVER) == before


@pytest.mark.long
def test_nothing_is_replaced_under_a_program_that_is_nobodys(fleet, cleaned):
    cleaned.append("systemctl stop trainer")
    fleet.run("systemctl start trainer")
    before = fleet.run(DRIVER)
    assert fleet.play(**UPGRADE).fails_everywhere("driver 6.19.14 is to be replaced, and process", "trainer.service")
    assert fleet.run(DRIVER) == before


def test_a_reboot_that_is_needed_and_not_allowed_is_named(fleet, cleaned):
    """Another build is loaded than the one on disk, and something that is not seen keeps it from being unloaded."""
    srcversion = "/standin/sys/module/amdgpu/srcversion"
    cleaned += [f"mv /var/lib/standin/kept {srcversion}", "rm -f /var/lib/standin/users"]
    fleet.run(f"cp {srcversion} /var/lib/standin/kept && echo OLD >{srcversion} && echo 1 >/var/lib/standin/users")
    done = fleet.play()
    words = "a reboot is needed (the loaded driver is 6.19.14, the installed one is 6.19.14.31400100)"
    assert done.fails_everywhere("Module amdgpu is in use", words, "rocm_reboot_allowed is false")


# The scenario role_cuda has one in CI; the tasks are those of vendor_stack.
@pytest.mark.long
def test_nothing_is_installed_that_another_key_has_signed(fleet, cleaned):
    cleaned.append("true")
    fleet.mirror("--rotate-key")
    before = fleet.run(DRIVER)
    done = fleet.play(**UPGRADE)
    assert done.fails_everywhere("a repository of AMD's driver cannot be used, nothing was installed from it")
    assert fleet.run(DRIVER) == before
    assert loaded(fleet) == {OLD}
    fleet.mirror("--publish-key")


@pytest.mark.long
def test_a_disk_that_is_full_leaves_the_old_driver_serving(fleet, serving):
    places = {"cpu-12": "/usr/src/amdgpu-7.1.3-2390945.22.04", "cpu-13": "/usr/src/amdgpu-7.1.3-2390945.24.04"}
    for name, place in places.items():
        fleet.hosts[name].check_output(f"mkdir -p {place} && mount -t tmpfs -o nr_inodes=1 standin {place}")
    before = fleet.run(DRIVER)
    done = fleet.play(**UPGRADE)
    for name, place in places.items():
        fleet.hosts[name].check_output(f"umount {place}")
    assert done.fails_everywhere("No space left on device")
    # User space of another release lies beside the old one; nothing uses it.
    assert without_user_space(fleet.run(DRIVER)) == without_user_space(before)
    assert loaded(fleet) == {OLD}
    assert set(fleet.run("systemctl is-active vllm@chat").values()) == {"active"}


def without_user_space(said):
    """Return of each host's packages those that are not user space."""
    return {host: [line for line in text.splitlines() if "amdrocm" not in line] for host, text in said.items()}


@pytest.mark.long
def test_an_upgrade_stops_what_uses_the_chips_and_starts_it_again(fleet, serving):
    done = fleet.play(**UPGRADE)
    assert done.rc == 0, done.output
    for name, log in fleet.run("cat /var/lib/standin/log").items():
        words = ("stop", "rmmod", "dkms standin", "modprobe", "start")
        steps = [line.split("-2390945")[0] for line in log.splitlines() if line.startswith(words)]
        assert steps == [
            "stop vllm@chat",
            *(f"rmmod {module}" for module in ("amdgpu", "amdxcp", "amdttm", "amdkcl")),
            "dkms standin-install amdgpu 7.1.3",
            "modprobe amdgpu",
            "start vllm@chat",
        ], name
    assert loaded(fleet) == {NEW}
    assert set(fleet.run("systemctl is-active vllm@chat").values()) == {"active"}
    # Of the two, one has ROCm in user space, which came with the driver.
    assert fleet.hosts["cpu-12"].check_output("cat /opt/rocm/core/.info/version") == "10.0.0"


@pytest.mark.long
def test_a_build_that_fails_is_named_and_mended_by_the_next_run(fleet, cleaned):
    cleaned.append("rm -f /var/lib/standin/build-fails")
    fleet.run("touch /var/lib/standin/build-fails")
    done = fleet.play(rocm_version="7.14.0", rocm_policy="install")
    assert done.fails_everywhere("Bad return status for module build on kernel", "implicit declaration of function")
    fleet.run("rm /var/lib/standin/build-fails")
    done = fleet.play(**UPGRADE)
    assert done.rc == 0, done.output
    assert loaded(fleet) == {NEW}
    assert set(fleet.run("dpkg --audit").values()) == {""}


# The second request is that of the upgrade above.
@pytest.mark.parametrize("requested", [{}, pytest.param(UPGRADE, marks=pytest.mark.long)], ids=["plain", "upgrade"])
def test_all_is_well_again_and_nothing_changes(fleet, requested):
    done = fleet.play(**requested)
    assert (done.rc, done.changed) == (0, 0), done.output
