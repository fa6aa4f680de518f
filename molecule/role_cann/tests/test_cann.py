# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver and its firmware that were installed, and what the next run says of those that have come to harm."""

from __future__ import annotations

import pytest

PACKAGED, BY_FILES = "cpu-12", "cpu-13"
STATE = "/var/lib/standin"
INFO = "/usr/local/Ascend/firmware/version.info"
DRIVER_INFO = "/usr/local/Ascend/driver/version.info"
CALLS = "sed -n 's/^run-file huawei //p' /var/lib/standin/log"
UPGRADE = {"cann_release": "newer", "cann_policy": "install", "cann_reboot_allowed": True}
A3 = "Ascend-hdk-A3-npu-{}.run"


def versions(fleet):
    """Return driver and firmware that each host has on disk."""
    return {
        name: tuple(line.partition("=")[2] for line in text.split())
        for name, text in fleet.run(f"grep -h ^Version= {DRIVER_INFO} {INFO}").items()
    }


def both(*words):
    return {PACKAGED: words, BY_FILES: words}


def test_driver_and_firmware_of_the_row_are_there(fleet):
    assert versions(fleet) == both("25.5.1", "7.8.0.6.201")
    assert all("Driver_Install_Status=complete" in text for text in fleet.run("cat /etc/ascend_install.info").values())
    assert all("drwx" in text for text in fleet.run("ls -ld /usr/local/dcmi").values())


def test_the_driver_came_before_its_firmware(fleet):
    calls = fleet.run(CALLS)
    assert calls[BY_FILES].split("\n") == [
        f"{A3.format('driver_25.5.1_linux-x86-64')} --full --install-for-all --quiet",
        f"{A3.format('firmware_7.8.0.6.201')} --full --quiet",
    ]
    assert [line.split("_")[0] for line in calls[PACKAGED].split("\n")] == [
        "Ascend-hdk-910b-npu-driver",
        "Ascend-hdk-910b-npu-firmware",
    ]


def test_the_user_was_there_before_them(fleet):
    for host in fleet.hosts.values():
        user = host.user("HwHiAiUser")
        assert (user.group, user.home, user.shell) == ("HwHiAiUser", "/home/HwHiAiUser", "/bin/bash")


def test_packages_are_held_and_files_are_only_roots(fleet):
    assert set(fleet.hosts[PACKAGED].check_output("apt-mark showhold").split()) == {
        "ascend910b-driver",
        "ascend910b-firmware",
    }
    file = fleet.hosts[BY_FILES].file(f"/var/lib/baremetal-cann/{A3.format('driver_25.5.1_linux-x86-64')}")
    assert (file.user, file.mode) == ("root", 0o750)


def test_the_repository_is_believed_with_the_vendors_key_only(fleet):
    host = fleet.hosts[PACKAGED]
    entry = host.file("/etc/apt/sources.list.d/ascend-cann.sources")
    assert entry.contains("^Signed-By: /usr/share/keyrings/cann-archive-keyring.gpg$")
    assert entry.contains("^Suites: hdk$")
    # Of the package that brings the key, the key alone is taken.
    assert not host.package("cann-keyring").is_installed
    assert not host.file("/etc/apt/sources.list.d/ascend-cann.list").exists
    assert not fleet.hosts[BY_FILES].file("/etc/apt/sources.list.d/ascend-cann.sources").exists


def test_a_licence_that_nobody_has_accepted(fleet):
    before = fleet.run(CALLS)
    said = fleet.play(**{**UPGRADE, "cann_licence_accepted": False})
    assert said.fails_everywhere(
        "firmware 9.0.0.0.205, driver 26.0.RC1 would be installed, and Huawei's licence for them is not accepted"
    )
    assert said.changed == 0
    assert fleet.run(CALLS) == before


def test_a_host_on_which_nothing_may_change(fleet):
    said = fleet.play(cann_policy="halt", cann_release="newer")
    assert said.fails_everywhere(
        "driver 25.5.1 is on the host, release newer needs 26.0.RC1 or newer", "cann_policy is halt"
    )
    assert said.changed == 0
    assert versions(fleet) == both("25.5.1", "7.8.0.6.201")


def test_a_chip_that_npu_smi_does_not_list_and_one_that_is_not_well(fleet, cleaned):
    cleaned.append(f"rm -f {STATE}/lost-chip {STATE}/alarm")
    fleet.run(f"echo 0000:01:00.0 >{STATE}/lost-chip; echo 0000:41:00.0 >{STATE}/alarm")
    said = fleet.play()
    assert said.fails_everywhere(
        "Huawei's driver is not healthy",
        "chip 0000:01:00.0",
        "the driver is not bound to it",
        "chip 0000:41:00.0: health is Alarm, error 0x80E18402",
    )
    assert "npu-smi lists 7 of 8 chips" in said.errors[PACKAGED]
    assert "npu-smi lists 15 of 16 chips" in said.errors[BY_FILES]


def test_firmware_that_does_not_fit_the_driver(fleet, cleaned):
    cleaned.append(f"mv {STATE}/kept {INFO}")
    fleet.run(f"cp {INFO} {STATE}/kept; sed -i 's/^Version=.*/Version=6.3.0/; s/_drv=.*/_drv=[23.0.0,23.0.0.]/' {INFO}")
    said = fleet.play()
    assert said.fails_everywhere(
        "driver 25.5.1 and firmware 6.3.0 do not fit: driver 25.5.1 takes firmware [7.0.0,8.9.9]"
    )
    assert said.changed == 0


@pytest.mark.long
def test_a_package_that_is_no_longer_held_is_held_again(fleet):
    host = fleet.hosts[PACKAGED]
    host.check_output("apt-mark unhold ascend910b-driver")
    said = fleet.play(limit=PACKAGED)
    assert (said.rc, said.changed) == (0, 1), said.output
    assert "ascend910b-driver" in host.check_output("apt-mark showhold").split()


def test_a_file_with_another_checksum_is_never_run(fleet, cleaned):
    file = A3.format("driver_26.0.rc1_linux-x86-64")
    cleaned.append(f"if [ -e {STATE}/kept ]; then mv {STATE}/kept /srv/run/{file}; fi")
    host = fleet.hosts[BY_FILES]
    host.check_output(f"cp -p /srv/run/{file} {STATE}/kept; echo '# x' >>/srv/run/{file}")
    before = host.check_output(CALLS)
    said = fleet.play(limit=BY_FILES, **UPGRADE)
    assert said.rc != 0
    assert "checksum" in said.errors[BY_FILES]
    assert host.check_output(CALLS) == before
    assert not host.file(f"/var/lib/baremetal-cann/{file}").exists


def test_an_installer_that_fails_says_why(fleet, cleaned):
    cleaned.append(f"rm -f {STATE}/installer-fails")
    fleet.run(f"echo 'verify CRL failed' >{STATE}/installer-fails")
    said = fleet.play(limit=BY_FILES, **UPGRADE)
    assert said.rc != 0
    words = said.errors[BY_FILES]
    assert f"{A3.format('firmware_9.0.0.0.205')} ended with status 1 (another firmware, 9.0.0.0.205)" in words
    assert "[ERROR]verify CRL failed" in words
    assert versions(fleet) == both("25.5.1", "7.8.0.6.201")


@pytest.mark.long
def test_a_kernel_that_changed_under_it(fleet, cleaned):
    cleaned.append("standin boot --kernel 6.1.0-40-amd64")
    fleet.run("standin boot --kernel 6.1.0-41-amd64")
    said = fleet.play()
    assert said.fails_everywhere(
        "a reboot is needed (driver 25.5.1 is installed and not loaded), and cann_reboot_allowed is false"
    )
    # What could be done without one was done: headers, and modules for the kernel that runs.
    fleet.run("dpkg -s linux-headers-6.1.0-41-amd64; modinfo -k 6.1.0-41-amd64 drv_davinci_intf_host")
    fleet.run("standin boot --kernel 6.1.0-41-amd64")
    assert fleet.play().rc == 0


@pytest.mark.long
def test_chips_that_cannot_be_started_anew_need_a_reboot(fleet, cleaned):
    """Status 2 of the installer."""
    cleaned.append(f"rm -f {STATE}/hot-reset-fails")
    host = fleet.hosts[BY_FILES]
    host.check_output("modprobe -r drv_devmng_host; sed -i /Status/d /etc/ascend_install.info")
    host.check_output(f"touch {STATE}/hot-reset-fails")
    said = fleet.play(limit=BY_FILES)
    assert "a reboot is needed (driver 25.5.1 is installed and not loaded)" in said.errors[BY_FILES]
    assert "cann_reboot_allowed is false" in said.errors[BY_FILES]
    assert "--install-for-all" in host.check_output(CALLS).split("\n")[-2]
    host.check_output(f"rm {STATE}/hot-reset-fails; standin boot")
    said = fleet.play(limit=BY_FILES)
    assert (said.rc, said.changed) == (0, 0), said.output


# The three that follow go on from each other.
@pytest.mark.long
def test_an_upgrade_does_the_firmware_first_and_starts_again_what_was_stopped(fleet, cleaned):
    cleaned.append("systemctl stop vllm@chat")
    fleet.run(f"systemctl start vllm@chat; : >{STATE}/log")
    said = fleet.play(**UPGRADE)
    assert said.rc == 0, said.output
    assert versions(fleet) == both("26.0.rc1", "9.0.0.0.205")
    assert all("Version: 26.0.rc1" in text for text in fleet.run("npu-smi info").values())
    calls = fleet.run(CALLS)
    assert calls[BY_FILES].split("\n") == [
        f"{A3.format('firmware_9.0.0.0.205')} --upgrade --quiet",
        f"{A3.format('driver_26.0.rc1_linux-x86-64')} --upgrade --quiet",
    ]
    assert "firmware_9" in calls[PACKAGED].split("\n")[0]
    assert "driver_26" in calls[PACKAGED].split("\n")[1]
    # systemd does not wait until the program has begun.
    fleet.until(f"tail -n1 {STATE}/log | grep -q ^start")
    for text in fleet.run(f"grep -E 'vllm|run-file' {STATE}/log").values():
        # Before these it was started by this test.
        assert [line.split()[0] for line in text.split("\n")][-4:] == ["stop", "run-file", "run-file", "start"]
    assert set(fleet.run("systemctl is-active vllm@chat").values()) == {"active"}
    again = fleet.play(cann_release="newer")
    assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.long
def test_cann_itself_where_it_is_wanted(fleet):
    said = fleet.play(cann_release="newer", cann_toolkit=True)
    assert said.rc == 0, said.output
    for text in fleet.run("cat /usr/local/Ascend/cann/*/ascend_*_install.info /usr/local/Ascend/nnal/*/*/*").values():
        assert text.count("version=9.1.0") == 3
    again = fleet.play(cann_release="newer", cann_toolkit=True)
    assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.long
def test_facts_of_what_is_there(fleet):
    said = fleet.play("-v", cann_release="newer")
    for fact in ("driver_version: 26.0.rc1", "firmware_version: 9.0.0.0.205", "cann_version: 9.1.0"):
        name, _colon, version = fact.partition(": ")
        assert said.output.count(f'"accelerator_{name}": "{version}"') >= len(fleet.hosts)
