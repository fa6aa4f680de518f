# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every operating system x chip x way of installation: the repository, packages and command lines, word by word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import Cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciFunction
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import match
from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import Installed
from ansible_collections.baremetal.inference.plugins.module_utils.cann.chips import hardware_of
from ansible_collections.baremetal.inference.plugins.module_utils.cann.installers import read_files
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    DkmsBuild,
    Host,
    Module,
    StackError,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.cann.plan import CannRequest, MatrixRow, plan_driver
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue

CATALOGUE = load_catalogue([])
ROW = MatrixRow("9.1.0", "26.0.RC1", "9.0.0.0.205")
REQUEST = CannRequest("0.23.0", ROW, licence_accepted=True)
SHA = "ab" * 32
MODULE = "drv_davinci_intf_host"

DEB_KERNEL, UBUNTU_KERNEL = "6.1.0-28-amd64", "5.15.0-25-generic"
EULER_KERNEL, KYLIN_KERNEL = "6.6.0-144.0.0.130.oe2403sp3.aarch64", "4.19.90-52.22.v2207.ky10.aarch64"


def system(distribution, version, codename, arch, kernel, packages=()):
    return Host(distribution, version, codename, arch, kernel, kernel, False, packages=dict(packages))


def headers(kernel):
    return ["make", "gcc", "net-tools", f"kernel-headers-{kernel}", f"kernel-devel-{kernel}", "dkms"]


DEBIAN = {"linux-image-amd64": "6.1.119-1", f"linux-image-{DEB_KERNEL}": "6.1.119-1"}
UBUNTU = {"linux-image-generic": "5.15.0.25.27", f"linux-image-{UBUNTU_KERNEL}": "5.15.0-25.25"}
DEB_BUILD = ["make", "gcc", "net-tools", f"linux-headers-{DEB_KERNEL}", "linux-headers-amd64", "dkms"]
UBUNTU_BUILD = ["make", "gcc", "net-tools", f"linux-headers-{UBUNTU_KERNEL}", "linux-headers-generic", "dkms"]
# Of each system: the host, and what the driver is built with.
SYSTEMS = {
    "debian12": (system("debian", "12", "bookworm", "x86_64", DEB_KERNEL, DEBIAN), DEB_BUILD),
    "debian13": (system("debian", "13", "trixie", "x86_64", DEB_KERNEL, DEBIAN), DEB_BUILD),
    "ubuntu2204": (system("ubuntu", "22.04", "jammy", "aarch64", UBUNTU_KERNEL, UBUNTU), UBUNTU_BUILD),
    "ubuntu2404": (system("ubuntu", "24.04", "noble", "x86_64", UBUNTU_KERNEL, UBUNTU), UBUNTU_BUILD),
    "openeuler2203": (system("openeuler", "22.03", "", "aarch64", EULER_KERNEL), headers(EULER_KERNEL)),
    "openeuler2403": (system("openeuler", "24.03", "", "aarch64", EULER_KERNEL), headers(EULER_KERNEL)),
    "kylin10": (system("kylin", "V10", "", "aarch64", KYLIN_KERNEL), headers(KYLIN_KERNEL)),
}


def machine(*groups):
    found = []
    for pci_id, count in groups:
        vendor, device = pci_id.split(":")
        first = len(found)
        found += [PciFunction(f"0000:{first + n:02x}:00.0", vendor, device, "1200") for n in range(count)]
    cpu = Cpu("aarch64", "Kunpeng-920", ("asimd",), 2, 4, 1, 1000)
    return hardware_of(match(found, CATALOGUE, cpu).as_dict(), CATALOGUE)


A2, A3, DUO = ("19e5:d802", 8), ("19e5:d803", 16), ("19e5:d500", 2)
# Of each machine: its chips, packages for apt and for dnf, operators of CANN, and chip in the names of files.
MACHINES = {
    "atlas_800_a2": (
        machine(A2),
        ["ascend910b-driver=26.0.rc1", "ascend910b-firmware=9.0.0.0.205"],
        ["Ascend910B-driver-26.0.rc1", "Ascend910B-firmware-9.0.0.0.205"],
        "910b",
    ),
    "atlas_800_a3": (
        machine(A3),
        ["atlas-a3-hdk-npu-driver=26.0.rc1", "atlas-a3-hdk-npu-firmware=9.0.0.0.205"],
        ["Atlas-A3-hdk-npu-driver-26.0.rc1", "Atlas-A3-hdk-npu-firmware-9.0.0.0.205"],
        "A3",
    ),
    "atlas_300i_duo": (
        machine(DUO),
        ["ascend310p-driver=26.0.rc1", "ascend310p-firmware=9.0.0.0.205"],
        ["Ascend310P-driver-26.0.rc1", "Ascend310P-firmware-9.0.0.0.205"],
        "310p",
    ),
    "atlas_950": (
        machine(("19e5:d806", 8)),
        ["ascend-hdk-950-npu-driver=26.0.rc1", "ascend-hdk-950-npu-firmware=9.0.0.0.205"],
        ["Ascend-hdk-950-npu-driver-26.0.rc1", "Ascend-hdk-950-npu-firmware-9.0.0.0.205"],
        "950",
    ),
    "atlas_800_9000": (
        machine(("19e5:d801", 8)),
        ["ascend910-driver=26.0.rc1", "ascend910-firmware=9.0.0.0.205"],
        ["Ascend910-driver-26.0.rc1", "Ascend910-firmware-9.0.0.0.205"],
        "910",
    ),
}
BOX = MACHINES["atlas_800_a2"][0]
HOST, BUILD = SYSTEMS["debian12"]
NOTHING = Installed()
ON_ROW = Installed(
    driver="26.0.rc1",
    complete=True,
    owner="HwHiAiUser",
    driver_firmwares="[7.0.0,9.9.99]",
    firmware="9.0.0.0.205",
    hdk="26.0.rc1",
    running="26.0.rc1",
    running_firmware="9.0.0.0.205",
    group="HwHiAiUser",
    has_group=True,
)
OLDER = replace(
    ON_ROW,
    driver="25.5.1",
    driver_firmwares="[7.0.0,8.9.9]",
    firmware="7.8.0.6.201",
    hdk="25.5.1",
    running="25.5.1",
    running_firmware="7.8.0.6.201",
)
DKMS = DkmsBuild("davinci_ascend", "1.0", DEB_KERNEL, "installed")
SETTLED = replace(
    HOST,
    packages={
        **DEBIAN,
        **dict.fromkeys(DEB_BUILD, "1"),
        "ascend910b-driver": "26.0.rc1",
        "ascend910b-firmware": "9.0.0.0.205",
    },
    modules={MODULE: Module()},
    dkms=(DKMS,),
    holds=("ascend910b-driver", "ascend910b-firmware"),
)
BY_RUN = replace(SETTLED, packages={**DEBIAN, **dict.fromkeys(DEB_BUILD, "1")})


def entry(name, url="https://files.example/{}"):
    return {"url": url.format(name), "sha256": SHA}


def files(chip, arch, *parts):
    """Return the entries of a site that has driver, firmware and CANN of one row for a chip."""
    names = {
        "driver": f"Ascend-hdk-{chip}-npu-driver_26.0.rc1_linux-{arch}.run",
        "firmware": f"Ascend-hdk-{chip}-npu-firmware_9.0.0.0.205.run",
        "toolkit": f"Ascend-cann-toolkit_9.1.0_linux-{arch}.run",
        "ops": f"Ascend-cann-{chip}-ops_9.1.0_linux-{arch}.run",
        "nnal": f"Ascend-cann-nnal_9.1.0_linux-{arch}.run",
    }
    return read_files([entry(names[part]) for part in parts or names])


def specs(found, host):
    return [package.spec(host.manager) for package in found.packages]


def argvs(found):
    return [(one.name, " ".join(one.argv).replace(one.path, "FILE")) for one in found.installers]


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


INSTALL = replace(REQUEST, policy="install")


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


MIXED = replace(OLDER, cann={"toolkit": "9.1.0", "ops": "9.1.0", "nnal": "9.1.0"})
BAD_FIRMWARE = replace(ON_ROW, driver_firmwares="[7.0.0,8.9.9]")
RUNS = files("910b", "x86-64")
# Of each: host, chips, what is installed, the requested, and words of the one sentence.
HALTS = {
    "no chip": (HOST, machine(), NOTHING, REQUEST, "no Ascend chip is on PCI"),
    "unknown chip": (HOST, machine(("19e5:d100", 4)), NOTHING, REQUEST, "no driver package is known for ascend_310;"),
    "two kinds": (
        HOST,
        machine(("19e5:d802", 1), DUO),
        NOTHING,
        REQUEST,
        "ascend_310p (310p) and ascend_a2 (910b) need different driver packages",
    ),
    "system": (
        replace(HOST, version="11"),
        BOX,
        NOTHING,
        REQUEST,
        "debian 11 is not supported for Huawei's driver; supp",
    ),
    "machine": (replace(HOST, architecture="riscv64"), BOX, NOTHING, REQUEST, "Huawei has no driver for riscv64"),
    "distro": (HOST, BOX, NOTHING, replace(REQUEST, source="distro"), "no distribution has Huawei's driver"),
    "licence": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, licence_accepted=False),
        "driver 26.0.RC1, firmware 9.0.0.0.205 would be installed, and Huawei's licence for them is not accepted",
    ),
    "no source": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, source="none"),
        "it is not on the host, and cann_source is none",
    ),
    "half": (
        BY_RUN,
        BOX,
        replace(ON_ROW, complete=False),
        replace(REQUEST, source="none"),
        "its installation was not completed, and cann_source is none",
    ),
    "halt": (HOST, BOX, NOTHING, replace(REQUEST, policy="halt"), "cann_policy is halt, and these are to be installed"),
    "old driver": (
        SETTLED,
        BOX,
        OLDER,
        REQUEST,
        "driver 25.5.1 is on the host, release 0.23.0 belongs to 26.0.RC1 with CANN 9.1.0, and cann_policy is retain",
    ),
    "rows mixed": (SETTLED, BOX, MIXED, REQUEST, "driver 25.5.1 is on the host, release 0.23.0 belongs to 26.0.RC1"),
    "firmware": (
        SETTLED,
        BOX,
        BAD_FIRMWARE,
        REQUEST,
        "driver 26.0.rc1 and firmware 9.0.0.0.205 do not fit: driver 26.0.rc1 takes firmware [7.0.0,8.9.9]",
    ),
    "firmware of no release": (
        SETTLED,
        BOX,
        BAD_FIRMWARE,
        replace(INSTALL, row=replace(ROW, firmware="")),
        "release 0.23.0 names no firmware that fits: set cann_firmware_version",
    ),
    "asked": (
        SETTLED,
        BOX,
        ON_ROW,
        replace(REQUEST, asked=True, policy="halt", row=replace(ROW, driver="26.1.1")),
        "driver 26.0.rc1 is on the host, release 0.23.0 belongs to 26.1.1",
    ),
    "cann": (
        SETTLED,
        BOX,
        replace(ON_ROW, cann={"toolkit": "8.5.1"}),
        replace(REQUEST, toolkit=True),
        "CANN on the host is toolkit 8.5.1, release 0.23.0 belongs to 9.1.0, and cann_policy is retain",
    ),
    "cann without a source": (
        SETTLED,
        BOX,
        ON_ROW,
        replace(REQUEST, toolkit=True, source="none"),
        "CANN 9.1.0 lacks toolkit, ops, nnal, and cann_source is none",
    ),
    "group": (
        HOST,
        BOX,
        replace(NOTHING, group="users"),
        REQUEST,
        "user HwHiAiUser is in group users, Huawei's installer expects HwHiAiUser; correct it with 'usermod --gid",
    ),
    "packages over a file": (BY_RUN, BOX, OLDER, INSTALL, "the driver on the host came from a .run file"),
    "a file over packages": (
        SETTLED,
        BOX,
        OLDER,
        replace(INSTALL, files=RUNS),
        "ascend910b-driver, ascend910b-firmware came as packages, which .run files do not replace",
    ),
    "format packages": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, format="packages", files=RUNS),
        "cann_format is packages and",
    ),
    "format run": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, format="run"),
        "cann_format is run and cann_run_files is empty",
    ),
    "no file": (
        HOST,
        BOX,
        NOTHING,
        replace(REQUEST, files=files("910b", "x86-64", "driver")),
        "cann_run_files has no firmware; this host needs Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run",
    ),
    "secure boot": (
        replace(HOST, secure_boot=True, signing_key_enrolled=False),
        BOX,
        NOTHING,
        REQUEST,
        "Secure Boot is on and the key",
    ),
}


@pytest.mark.parametrize("name", HALTS)
def test_what_halts(name):
    host, hardware, installed, requested, words = HALTS[name]
    found = plan_driver(host, hardware, installed, requested)
    assert found.halt is not None
    assert words in found.halt
    assert found == replace(type(found)(), halt=found.halt)


BAD_FILES = {
    "no address": ({"url": "", "sha256": SHA}, "a file has the address ''; expected http(s):// or file://"),
    "ftp": (entry("x.run", "ftp://a/{}"), "expected http(s):// or file://"),
    "no sum": ({"url": "https://a/Ascend-cann-nnal_9.1.0_linux-aarch64.run"}, "no file is run that was not verified"),
    "short sum": ({"url": "https://a/x.run", "sha256": "abc"}, "sha256 of x.run is 'abc', expected 64 hexadecimal"),
    "name": (
        entry("driver.run"),
        "'driver.run' is not a name of one of Huawei's files; expected forms like Ascend-hdk-910b",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_not_taken(name):
    given, words = BAD_FILES[name]
    with pytest.raises(StackError) as caught:
        read_files([given])
    assert words in str(caught.value)


# Of each: the names that the site offers for a 910B on x86_64, and words of the refusal.
UNFIT = {
    "chip": (["Ascend-hdk-310p-npu-driver_26.0.rc1_linux-x86-64.run"], "is for chip 310p, the host has 910b"),
    "other form": (["Atlas-A3-hdk-npu-driver_26.0.RC1_linux-aarch64.run"], "is for chip A3, the host has 910b"),
    "architecture": (["Ascend-hdk-910b-npu-driver_26.0.rc1_linux-aarch64.run"], "is for aarch64, the host is x86_64"),
    "version": (
        ["Ascend-hdk-910b-npu-driver_25.5.1_linux-x86_64.run"],
        "which needs Ascend-hdk-910b-npu-driver_26.0.RC1_linux-x86-64.run: Ascend-hdk-910b-npu-driver_25.5.1_linux-"
        "x86_64.run is for version 25.5.1, needed is 26.0.RC1",
    ),
    "several": (
        [f"Ascend-hdk-910b-npu-driver_26.0.rc1_linux-{arch}.run" for arch in ("x86-64", "x86_64")],
        "cann_run_files has several files for driver",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_files_that_do_not_fit_the_host(name):
    names, words = UNFIT[name]
    found = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, files=read_files([entry(file) for file in names])))
    assert words in found.halt


def test_a_fleet_names_the_files_of_all_its_hosts():
    offered = [*files("910b", "aarch64"), *files("910b", "x86-64", "driver"), *files("310p", "x86-64")]
    found = plan_driver(HOST, BOX, NOTHING, replace(REQUEST, files=tuple(offered)))
    assert [one.name for one in found.installers] == [
        "Ascend-hdk-910b-npu-driver_26.0.rc1_linux-x86-64.run",
        "Ascend-hdk-910b-npu-firmware_9.0.0.0.205.run",
    ]


def test_nodes_that_the_driver_has_to_have():
    nodes = MACHINES["atlas_800_a3"][0].nodes
    assert nodes[0] == "/dev/davinci0"
    assert "/dev/davinci15" in nodes
    assert nodes[1:4] == ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
    assert "/dev/devmm_svm" not in MACHINES["atlas_950"][0].nodes
