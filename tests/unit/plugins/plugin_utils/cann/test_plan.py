# SPDX-License-Identifier: GPL-3.0-or-later
"""Every operating system x chip x way of installation: the repository, packages and command lines, word by word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.cann.plan import (
    _row,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.cann.plan import (
    plan_driver as _plan_driver,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_release

from tests.fakes.ascend_plans import (
    BOX,
    BUILD,
    BY_RUN,
    DEBIAN,
    DKMS,
    HOST,
    INSTALL,
    MACHINES,
    NOTHING,
    OLDER,
    ON_ROW,
    REQUEST,
    ROW,
    SETTLED,
    SHA,
    SYSTEMS,
    argvs,
    files,
    specs,
)
from tests.fakes.driver_plans import halting

plan_driver = halting(_plan_driver)


@pytest.mark.parametrize("machine_name", MACHINES)
@pytest.mark.parametrize("system_name", SYSTEMS)
def test_packages_of_a_fresh_host(system_name, machine_name):
    host, build = SYSTEMS[system_name]
    hardware, apt, dnf, ops = MACHINES[machine_name]
    found = plan_driver(host, hardware, NOTHING, replace(REQUEST, toolkit=True))
    assert found.halt is None
    (repository,) = found.repositories
    if host.manager == "apt":
        cann = [f"ascend-cann-{part}=9.1.0" for part in ("toolkit", f"{ops}-ops", "nnal")]
        assert specs(found, host) == [*build, *apt, *cann]
        assert repository.file("apt").path == "/etc/apt/sources.list.d/ascend-cann.sources"
        assert repository.file("apt").content == (
            "Types: deb\nURIs: https://ascend.devcloud.huaweicloud.com/cann/debian\nSuites: hdk cann\n"
            "Components: main\nSigned-By: /usr/share/keyrings/cann-archive-keyring.gpg\n"
        )
        keyring = "https://ascend.devcloud.huaweicloud.com/cann/debian/cann-keyring_1.0.0_all.deb"
        assert repository.key.url == keyring
    else:
        cann = [f"Ascend-cann-{part}-9.1.0" for part in ("toolkit", f"{ops}-ops", "nnal")]
        assert specs(found, host) == [*build, *dnf, *cann]
        assert repository.file("dnf").content == (
            "[ascend-cann]\nname=ascend-cann\nbaseurl=https://repo.oepkgs.net/ascend/cann/aarch64/\nenabled=1\n"
            "gpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-CANN\n"
        )
        assert repository.key.url == "https://repo.oepkgs.net/ascend/cann/RPM-GPG-KEY-CANN"
    assert found.in_order
    assert [group.name for group in found.groups] == ["HwHiAiUser"]
    assert [(user.name, user.group, user.home, user.shell) for user in found.users] == [
        ("HwHiAiUser", "HwHiAiUser", "/home/HwHiAiUser", "/bin/bash")
    ]
    assert (found.installers, found.finish, found.reboot, found.replaces) == ((), (), (), "")
    assert set(found.hold) == {package.name for package in found.packages[len(build) :]}


@pytest.mark.parametrize("machine_name", MACHINES)
@pytest.mark.parametrize("system_name", SYSTEMS)
def test_files_of_a_fresh_host(system_name, machine_name):
    host, build = SYSTEMS[system_name]
    hardware, _apt, _dnf, chip = MACHINES[machine_name]
    arch = {"x86_64": "x86-64"}.get(host.architecture, host.architecture)
    found = plan_driver(host, hardware, NOTHING, replace(REQUEST, files=files(chip, arch), toolkit=True))
    assert found.halt is None
    assert found.repositories == ()
    assert specs(found, host) == build
    install = '/bin/bash -c . /usr/local/Ascend/ascend-toolkit/set_env.sh && exec "$0" "$@" FILE --install --quiet'
    assert argvs(found) == [
        (f"Ascend-hdk-{chip}-npu-driver_26.0.rc1_linux-{arch}.run", "FILE --full --install-for-all --quiet"),
        (f"Ascend-hdk-{chip}-npu-firmware_9.0.0.0.205.run", "FILE --full --quiet"),
        (f"Ascend-cann-toolkit_9.1.0_linux-{arch}.run", "FILE --full --quiet"),
        (f"Ascend-cann-{chip}-ops_9.1.0_linux-{arch}.run", install),
        (f"Ascend-cann-nnal_9.1.0_linux-{arch}.run", install),
    ]
    assert {one.sha256 for one in found.installers} == {SHA}
    assert found.installers[0].path == f"/var/lib/baremetal-cann/{found.installers[0].name}"
    assert found.installers[0].log == "/var/log/ascend_seclog/ascend_install.log"
    assert found.hold == ()


def test_an_upgrade_by_files_does_the_firmware_first():
    found = plan_driver(BY_RUN, BOX, OLDER, replace(INSTALL, files=files("910b", "x86-64")))
    assert argvs(found) == [
        ("Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run", "FILE --upgrade --quiet"),
        ("Ascend-hdk-910b-npu-driver_26.0.rc1_linux-x86-64.run", "FILE --upgrade --quiet"),
    ]
    assert found.replaces == "25.5.1"
    assert found.reboot == (
        "firmware 7.8.0.6.201 runs, 9.0.0.0.205 takes its place",
        "driver 25.5.1 runs, 26.0.RC1 takes its place",
    )
    assert (found.groups, found.users) == ((), ())


def test_an_upgrade_by_packages_does_the_firmware_first():
    host = replace(SETTLED, packages={**SETTLED.packages, "ascend910b-driver": "25.5.1", "ascend910b-firmware": "7.8"})
    found = plan_driver(host, BOX, OLDER, INSTALL)
    assert specs(found, host) == ["ascend910b-firmware=9.0.0.0.205", "ascend910b-driver=26.0.rc1"]
    assert found.in_order


def test_firmware_that_no_file_has_installed_yet_is_installed_whole():
    bare = replace(OLDER, firmware="", firmware_drivers="")
    found = plan_driver(BY_RUN, BOX, bare, replace(INSTALL, files=files("910b", "x86-64")))
    assert [words for _name, words in argvs(found)] == ["FILE --full --quiet", "FILE --upgrade --quiet"]


def test_another_user_is_named_to_the_driver_alone():
    requested = replace(REQUEST, user="npu", group="npus", files=files("910b", "x86-64"))
    found = plan_driver(HOST, BOX, NOTHING, requested)
    assert [words for _name, words in argvs(found)] == [
        "FILE --full --install-for-all --install-username=npu --install-usergroup=npus --quiet",
        "FILE --full --quiet",
    ]
    assert (found.users[0].name, found.users[0].group, found.groups[0].name) == ("npu", "npus", "npus")


@pytest.mark.parametrize("policy", ["retain", "install", "halt"])
def test_a_host_on_the_row_is_left_alone(policy):
    found = plan_driver(SETTLED, BOX, ON_ROW, replace(REQUEST, policy=policy))
    assert found.halt is None
    assert (found.packages, found.installers, found.repositories, found.finish, found.reboot) == ((), (), (), (), ())
    assert found.hold == ("ascend910b-driver", "ascend910b-firmware")


def test_a_newer_driver_is_retained_and_named():
    newer = replace(ON_ROW, driver="26.1.1", running="26.1.1")
    found = plan_driver(SETTLED, BOX, newer, REQUEST)
    assert found.notes == ("driver 26.1.1 is retained, the row of release 0.23.0 has 26.0.RC1",)
    assert found.packages == ()


# Huawei's notes on CANN 9.2.0, table "CANN and Ascend HDK Version Compatibility": which drivers each CANN takes.
DRIVERS = ("25.0.rc1", "25.2.0", "25.3.rc1", "25.5.1", "26.0.rc1", "26.1.1", "26.2.rc1")
COMPATIBLE = {"0.20.2": DRIVERS, "0.23.0": DRIVERS[1:], "0.30.0": DRIVERS[2:]}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("release", COMPATIBLE)
def test_a_driver_that_huawei_lists_as_compatible_is_retained(release, driver):
    options = dict.fromkeys(("version", "driver_version", "firmware_version"), "")
    row = _row(options, load_release(release, [])["stacks"]["cann"])
    there = replace(ON_ROW, driver=driver, running=driver, driver_firmwares="", firmware_drivers="", hdk="")
    found = plan_driver(SETTLED, BOX, there, replace(REQUEST, release=release, row=row))
    assert bool(found.halt) is (driver not in COMPATIBLE[release]), found.halt
    assert not found.packages
    # What the site asks for itself is what it gets.
    asked = _row({**options, "driver_version": "26.2.RC1"}, load_release(release, [])["stacks"]["cann"])
    assert asked.minimum == "26.2.RC1"


@pytest.mark.parametrize("driver", ["25.7.RC1", "25.6.RC1", "25.1.RC1"])
def test_a_driver_of_the_950_is_retained_where_the_site_names_it(driver):
    """Each board has its own, by Huawei's notes on MindCluster 26.1.0; the row of the release is not for them."""
    options = {"version": "", "driver_version": driver, "firmware_version": ""}
    row = _row(options, load_release("0.30.0", [])["stacks"]["cann"])
    there = replace(ON_ROW, driver=driver, running=driver, driver_firmwares="", firmware_drivers="", hdk="")
    found = plan_driver(SETTLED, BOX, there, replace(REQUEST, release="0.30.0", row=row, asked=True))
    assert (found.halt, found.packages) == (None, ())


def test_older_firmware_that_fits_is_retained_and_named():
    older = replace(ON_ROW, firmware="7.8.0.6.201", running_firmware="7.8.0.6.201")
    found = plan_driver(SETTLED, BOX, older, INSTALL)
    assert found.notes == ("firmware 7.8.0.6.201 is retained, the row of release 0.23.0 has 9.0.0.0.205",)
    assert (found.packages, found.reboot) == ((), ())


def test_an_installation_that_did_not_come_to_its_end_is_done_again():
    found = plan_driver(
        replace(BY_RUN, modules={}),
        BOX,
        replace(ON_ROW, complete=False),
        replace(REQUEST, files=files("910b", "x86-64")),
    )
    assert [words for _name, words in argvs(found)] == ["FILE --full --install-for-all --quiet", "FILE --full --quiet"]


def test_a_kernel_that_boots_next_gets_its_module():
    following = "6.1.0-40-amd64"
    host = replace(SETTLED, next_kernel=following, packages={**SETTLED.packages, f"linux-image-{following}": "1"})
    found = plan_driver(host, BOX, ON_ROW, REQUEST)
    assert specs(found, host) == [f"linux-headers-{following}"]
    assert [command.argv for command in found.finish] == [("dkms", "autoinstall", "-k", following)]
    fresh = plan_driver(replace(HOST, next_kernel=following), BOX, NOTHING, REQUEST)
    assert [command.argv for command in fresh.finish] == [("dkms", "autoinstall", "-k", following)]


def test_without_a_source_nothing_but_the_modules_is_mended():
    host = replace(SETTLED, dkms=(replace(DKMS, kernel="6.1.0-1-amd64"),))
    found = plan_driver(host, BOX, ON_ROW, replace(REQUEST, source="none"))
    assert (found.packages, len(found.finish)) == ((), 1)


REBOOTS = {
    "not loaded": ({}, ON_ROW, ("driver 26.0.rc1 is installed and not loaded",)),
    "driver": (
        SETTLED.modules,
        replace(ON_ROW, running="25.5.1"),
        ("driver 25.5.1 runs, 26.0.rc1 is installed",),
    ),
    "firmware": (
        SETTLED.modules,
        replace(ON_ROW, running_firmware="7.8.0.6.201"),
        ("firmware 7.8.0.6.201 runs, 9.0.0.0.205 is installed",),
    ),
    "nobody says": (SETTLED.modules, replace(ON_ROW, running="", running_firmware=""), ()),
}


@pytest.mark.parametrize("name", REBOOTS)
def test_what_is_installed_and_does_not_run_needs_a_reboot(name):
    modules, installed, reasons = REBOOTS[name]
    assert plan_driver(replace(SETTLED, modules=modules), BOX, installed, REQUEST).reboot == reasons


def test_a_mirror_and_a_key_of_the_site():
    found = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, source="mirror", mirror="http://mirror.example/cann/"))
    (repository,) = found.repositories
    assert repository.url == "http://mirror.example/cann"
    assert repository.suites == ("hdk",)
    assert repository.key.url == "http://mirror.example/cann/cann-keyring_1.0.0_all.deb"
    own = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, key="http://mirror.example/key.asc")).repositories[0]
    assert (own.key.url, own.key.path) == ("http://mirror.example/key.asc", "/etc/apt/keyrings/cann-site.asc")
    kept = replace(HOST, packages={**DEBIAN, "cann-keyring": "1.0.0"})
    assert plan_driver(kept, BOX, NOTHING, REQUEST).repositories[0].key.url == ""
    euler = SYSTEMS["openeuler2403"][0]
    there = plan_driver(euler, BOX, NOTHING, replace(REQUEST, mirror="http://mirror.example/cann")).repositories[0]
    assert (there.url, there.key.url) == (
        "http://mirror.example/cann/aarch64/",
        "http://mirror.example/cann/RPM-GPG-KEY-CANN",
    )


def test_a_release_without_firmware_leaves_it_as_it_is():
    found = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, row=replace(ROW, firmware="")))
    assert specs(found, HOST)[len(BUILD) :] == ["ascend910b-driver=26.0.rc1"]
    assert found.notes == ("release 0.23.0 names no firmware, so it stays unchanged",)


def test_the_version_as_the_repository_writes_it():
    offered = {"ascend910b-driver": ["25.5.1", "26.0.rc1-1"], "ascend910b-firmware": ["9.0.0.0.205"]}
    offered.update({name: ["1"] for name in BUILD})
    found = plan_driver(HOST, BOX, NOTHING, REQUEST, offered)
    assert specs(found, HOST)[-2:] == ["ascend910b-driver=26.0.rc1-1", "ascend910b-firmware=9.0.0.0.205"]
    gone = plan_driver(HOST, BOX, NOTHING, REQUEST, {**offered, "ascend910b-driver": ["25.5.1", "26.1.1"]})
    assert gone.halt.startswith("the repository has no ascend910b-driver 26.0.rc1; it has 25.5.1, 26.1.1;")


def test_a_repository_that_has_no_firmware_at_all():
    offered = {"ascend910b-driver": ["26.0.rc1"], "ascend910b-firmware": []}
    found = plan_driver(HOST, BOX, NOTHING, REQUEST, offered)
    assert specs(found, HOST)[-1] == "ascend910b-driver=26.0.rc1"
    assert found.notes == (
        "the repository has no ascend910b-firmware: firmware stays unchanged, unless a .run file is named",
    )
    # Where only another firmware would help, that is no way out.
    requested = replace(INSTALL, row=replace(ROW, firmware="9.1.0.0.1"))
    host = replace(SETTLED, holds=())
    alone = plan_driver(host, BOX, replace(ON_ROW, driver_firmwares="[7.0.0,8.9.9]"), requested, offered)
    assert alone.halt.startswith("the repository has no ascend910b-firmware 9.1.0.0.1; it has none;")


def test_chips_that_vllm_cannot_serve_on_are_named():
    found = plan_driver(HOST, MACHINES["atlas_800_9000"][0], NOTHING, REQUEST)
    assert found.halt is None
    assert found.notes[0].startswith("nothing can be served on ascend_910: vLLM Ascend is built for A2")


def test_cann_of_another_release_on_the_host_is_named_where_containers_bring_theirs():
    found = plan_driver(SETTLED, BOX, replace(ON_ROW, cann={"toolkit": "8.5.1"}), REQUEST)
    assert found.notes == ("CANN 8.5.1 is on the host, release 0.23.0 has 9.1.0: containers have their own",)


def test_cann_alone_where_the_driver_is_there():
    requested = replace(REQUEST, toolkit=True, files=files("910b", "x86-64"))
    found = plan_driver(BY_RUN, BOX, replace(ON_ROW, cann={"toolkit": "9.1.0"}), requested)
    assert [one.name.split("_")[0] for one in found.installers] == ["Ascend-cann-910b-ops", "Ascend-cann-nnal"]
    assert (found.replaces, found.reboot) == ("", ())
