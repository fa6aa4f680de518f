# SPDX-License-Identifier: GPL-3.0-or-later
"""Every operating system x machine: the repositories, keys, packages and commands, word by word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import Cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciFunction
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import match
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.chips import hardware_of
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    DkmsBuild,
    DriverPlan,
    Host,
    Module,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.cuda.plan import (
    NOUVEAU,
    NVLINK5_MODULES,
    CudaRequest,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.cuda.plan import (
    plan_driver as _plan_driver,
)

from tests.fakes.driver_plans import halting

plan_driver = halting(_plan_driver)

CATALOGUE = load_catalogue([])
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"
EPEL = "https://dl.fedoraproject.org/pub/epel"
REQUEST = CudaRequest("0.33.0", "580.65.06")

DEB_KERNEL, UBUNTU_KERNEL = "6.1.0-28-amd64", "6.8.0-50-generic"
EL9_KERNEL, EL10_KERNEL = "5.14.0-570.12.1.el9_6.x86_64", "6.12.0-124.8.1.el10_1.x86_64"
DEBIAN_HEADERS = ["linux-headers-6.1.0-28-amd64", "linux-headers-amd64", "dkms"]
UBUNTU_HEADERS = ["linux-headers-6.8.0-50-generic", "linux-headers-generic", "dkms"]
EL9_HEADERS = [f"kernel-devel-{EL9_KERNEL}", f"kernel-devel-matched-{EL9_KERNEL}", "dkms"]
EL10_HEADERS = [f"kernel-devel-{EL10_KERNEL}", f"kernel-devel-matched-{EL10_KERNEL}", "dkms"]
UBUNTU_OPEN = ["nvidia-driver-pinning-580", "nvidia-dkms-580-open=580.*", "nvidia-open=580.*"]
UBUNTU_PROPRIETARY = ["nvidia-driver-pinning-580", "nvidia-dkms-580=580.*", "cuda-drivers=580.*"]
DEBIAN_DAEMON = "nvidia-persistenced=580.*"
DEBIAN_OPEN = ["nvidia-driver-pinning-580", "nvidia-kernel-open-dkms=580.*", "nvidia-open=580.*", DEBIAN_DAEMON]
DEBIAN_PROPRIETARY = ["nvidia-driver-pinning-580", "nvidia-kernel-dkms=580.*", "cuda-drivers=580.*", DEBIAN_DAEMON]
EL9_COMPUTE = [
    "nvidia-driver-cuda-580.*",
    "nvidia-driver-libs-580.*",
    "libnvidia-ml-580.*",
    "nvidia-persistenced-580.*",
]
EL9_OPEN = ["kmod-nvidia-open-dkms-580.*", *EL9_COMPUTE]
EL9_PROPRIETARY = ["kmod-nvidia-latest-dkms-580.*", *EL9_COMPUTE]
EL10_OPEN = ["kmod-nvidia-open-dkms-580.*", "nvidia-open-580.*"]
EL10_PROPRIETARY = ["kmod-nvidia-latest-dkms-580.*", "cuda-drivers-580.*"]
DEB_FABRIC = ["nvidia-fabricmanager=580.*", "libnvidia-nscq=580.*"]
DEB_NVLINK5 = [*DEB_FABRIC, "libnvsdm=580.*", "nvlsm", "infiniband-diags"]
RPM_FABRIC = ["nvidia-fabricmanager-580.*", "libnvidia-nscq-580.*"]
RPM_NVLINK5 = [*RPM_FABRIC, "libnvsdm-580.*", "nvlsm", "infiniband-diags"]
VERSIONLOCK = "dnf -y install python3-dnf-plugin-versionlock"
EL9_PREPARE = [VERSIONLOCK, "dnf -y module reset nvidia-driver", "dnf -y module enable nvidia-driver:580-{}"]
EL10_PREPARE = [VERSIONLOCK, "dnf -y versionlock add *nvidia*580*"]
APT_REBUILD, DNF_REBUILD = "update-initramfs -u -k all", "dracut --force --regenerate-all"


def system(distribution, version, codename, kernel, packages=()):
    return Host(distribution, version, codename, "x86_64", kernel, kernel, False, packages=dict(packages))


DEBIAN_IMAGES = {"linux-image-amd64": "6.1.119-1", f"linux-image-{DEB_KERNEL}": "6.1.119-1"}
UBUNTU_IMAGES = {"linux-image-generic": "6.8.0-50.51", "linux-image-unsigned-6.8.0-50-generic": "6.8.0-50.51"}
# Of each system: the host, the repository's tag, its key, headers, packages by flavour, fabric, preparation, rebuild.
SYSTEMS = {
    "debian12": (
        system("debian", "12", "bookworm", DEB_KERNEL, DEBIAN_IMAGES),
        ("debian12", "3bf863cc", DEBIAN_HEADERS, DEBIAN_OPEN, DEBIAN_PROPRIETARY),
    ),
    "debian13": (
        system("debian", "13", "trixie", DEB_KERNEL, DEBIAN_IMAGES),
        ("debian13", "8793F200", DEBIAN_HEADERS, DEBIAN_OPEN, DEBIAN_PROPRIETARY),
    ),
    "ubuntu2204": (
        system("ubuntu", "22.04", "jammy", UBUNTU_KERNEL, UBUNTU_IMAGES),
        ("ubuntu2204", "3bf863cc", UBUNTU_HEADERS, UBUNTU_OPEN, UBUNTU_PROPRIETARY),
    ),
    "ubuntu2404": (
        system("ubuntu", "24.04", "noble", UBUNTU_KERNEL, UBUNTU_IMAGES),
        ("ubuntu2404", "3bf863cc", UBUNTU_HEADERS, UBUNTU_OPEN, UBUNTU_PROPRIETARY),
    ),
    "ubuntu2604": (
        system("ubuntu", "26.04", "resolute", UBUNTU_KERNEL, UBUNTU_IMAGES),
        ("ubuntu2604", "3bf863cc", UBUNTU_HEADERS, UBUNTU_OPEN, UBUNTU_PROPRIETARY),
    ),
    "rhel9": (
        system("rhel", "9.6", "", EL9_KERNEL),
        ("rhel9", "D42D0685", EL9_HEADERS, EL9_OPEN, EL9_PROPRIETARY),
    ),
    "rocky9": (
        system("rocky", "9.6", "", EL9_KERNEL),
        ("rhel9", "D42D0685", EL9_HEADERS, EL9_OPEN, EL9_PROPRIETARY),
    ),
    "almalinux10": (
        system("almalinux", "10.1", "", EL10_KERNEL),
        ("rhel10", "CDF6BA43", EL10_HEADERS, EL10_OPEN, EL10_PROPRIETARY),
    ),
    "centos10": (
        system("centos", "10", "", EL10_KERNEL),
        ("rhel10", "CDF6BA43", EL10_HEADERS, EL10_OPEN, EL10_PROPRIETARY),
    ),
}


def functions(*groups):
    """PCI functions: of each group an id, a number of them and a class."""
    found = []
    for pci_id, count, pci_class in groups:
        vendor, device = pci_id.split(":")
        first = len(found)
        found += [PciFunction(f"0000:{first + n:02x}:00.0", vendor, device, pci_class) for n in range(count)]
    return found


def machine(*groups, ports=False):
    cpu = Cpu("x86_64", "Xeon", ("avx2",), 2, 4, 1, 1000)
    return hardware_of(match(functions(*groups), CATALOGUE, cpu).as_dict(), CATALOGUE, ports)


V100 = ("10de:1db5", 8, "0302")
T4 = ("10de:1eb8", 1, "0302")
# Of each machine: its hardware, its modules' flavour, its fabric.
MACHINES = {
    "hgx_a100": (machine(("10de:20b2", 8, "0302"), ("10de:1af1", 6, "0680")), "open", "nvswitch"),
    "hgx_h100": (machine(("10de:2330", 8, "0302"), ("10de:22a3", 4, "0680")), "open", "nvswitch"),
    "hgx_h200": (machine(("10de:2335", 8, "0302"), ("10de:22a3", 4, "0680")), "open", "nvswitch"),
    "hgx_b200": (machine(("10de:2901", 8, "0302"), ports=True), "open", "nvlink5"),
    "l40s": (machine(("10de:26b9", 4, "0302")), "open", ""),
    "v100": (machine(V100), "proprietary", ""),
    "t4_v100": (machine(T4, V100), "proprietary", ""),
}


@pytest.mark.parametrize("machine_name", MACHINES)
@pytest.mark.parametrize("system_name", SYSTEMS)
def test_a_fresh_host(system_name, machine_name):
    host, (tag, key, headers, opened, proprietary) = SYSTEMS[system_name]
    hardware, flavour, fabric = MACHINES[machine_name]
    apt = host.manager == "apt"
    found = plan_driver(host, hardware, REQUEST)

    assert found.halt is None
    base = f"{CUDA}/{tag}/x86_64/"
    repositories = [(repo.url, repo.key.url, repo.key.id) for repo in found.repositories]
    cuda = (base, f"{base}{key}.pub", key)
    if apt:
        assert repositories == [cuda]
        assert found.repositories[0].suites == ("/",)
        assert found.repositories[0].key.path == f"/etc/apt/keyrings/cuda-{key}.asc"
    else:
        epel = (f"{EPEL}/{host.major}/Everything/x86_64/", f"{EPEL}/RPM-GPG-KEY-EPEL-{host.major}", "")
        assert repositories == [epel, cuda]

    driver = opened if flavour == "open" else proprietary
    switches = {"": [], "nvswitch": DEB_FABRIC if apt else RPM_FABRIC, "nvlink5": DEB_NVLINK5 if apt else RPM_NVLINK5}
    assert [package.spec(host.manager) for package in found.packages] == [*headers, *driver, *switches[fabric]]
    assert ("nvidia-fabricmanager" in found.hold) == bool(fabric)
    assert {package.name for package in found.packages if package.version} == set(found.hold)

    streams = [word.format("open" if flavour == "open" else "dkms") for word in EL9_PREPARE]
    prepare = [] if apt else streams if host.major == "9" else EL10_PREPARE
    assert [" ".join(command.argv) for command in found.prepare] == prepare
    nvlink5 = ["modprobe mlx5_core", "modprobe ib_umad"] if fabric == "nvlink5" else []
    finish = [APT_REBUILD if apt else DNF_REBUILD, "modprobe nvidia", *nvlink5]
    assert [" ".join(command.argv) for command in found.finish] == finish
    assert (NVLINK5_MODULES in found.files) == bool(nvlink5)
    assert NOUVEAU in found.files
    services = ("nvidia-persistenced", "nvidia-fabricmanager")
    assert found.services == (services if fabric else services[:1])
    assert found.reboot == ()
    assert any("nothing can be served on v100" in note for note in found.notes) == (flavour == "proprietary")
    assert any("proprietary kernel modules for all chips" in note for note in found.notes) == (
        machine_name == "t4_v100"
    )


@pytest.mark.parametrize(
    ("system_name", "branch", "expected"),
    [
        ("ubuntu2404", "595", ["nvidia-driver-pinning-595", "nvidia-dkms-open=595.*", "nvidia-open=595.*"]),
        ("ubuntu2404", "580", UBUNTU_OPEN),
        ("ubuntu2404", "570", ["nvidia-dkms-570-open=570.*", "nvidia-open-570=570.*"]),
        ("debian13", "595", [word.replace("580", "595") for word in DEBIAN_OPEN]),
        ("rhel9", "595", [word.replace("580", "595") for word in EL9_OPEN]),
        ("almalinux10", "595", ["kmod-nvidia-open-dkms-595.*", "nvidia-open-595.*"]),
    ],
)
def test_names_before_and_after_branch_590(system_name, branch, expected):
    host = SYSTEMS[system_name][0]
    found = plan_driver(host, MACHINES["l40s"][0], replace(REQUEST, version=branch, minimum="570.26"))
    assert [package.spec(host.manager) for package in found.packages if "nvidia" in package.name] == expected


@pytest.mark.parametrize(
    ("system_name", "expected"),
    [
        ("ubuntu2404", ["nvidia-fabricmanager-570=570.*", "libnvidia-nscq-570=570.*"]),
        ("rhel9", ["nvidia-fabric-manager-570.*", "libnvidia-nscq-570-570.*"]),
    ],
)
def test_names_of_the_fabric_manager_before_580(system_name, expected):
    host = SYSTEMS[system_name][0]
    found = plan_driver(host, MACHINES["hgx_h100"][0], replace(REQUEST, version="570", minimum="570.26"))
    assert [package.spec(host.manager) for package in found.packages][-2:] == expected


def test_what_the_repository_offers_makes_every_version_exact():
    offered = ["580.65.06-0ubuntu1", "580.105.08-0ubuntu1", "580.95.05-0ubuntu1", "595.45.04-0ubuntu1"]
    found = plan_driver(SYSTEMS["ubuntu2404"][0], MACHINES["hgx_h200"][0], REQUEST, offered)
    versions = {package.name: package.version for package in found.packages if package.version}
    assert set(versions.values()) == {"580.105.08-*"}
    assert "nvidia-fabricmanager" in versions
    assert "nvidia-driver-pinning-580" in {package.name for package in found.packages}


def test_an_exact_version_is_pinned_and_asked_for():
    found = plan_driver(SYSTEMS["rhel9"][0], MACHINES["hgx_h200"][0], replace(REQUEST, version="580.95.05"))
    assert "nvidia-fabricmanager-580.95.05" in [package.spec("dnf") for package in found.packages]
    found = plan_driver(SYSTEMS["debian13"][0], MACHINES["l40s"][0], replace(REQUEST, version="580.95.05"))
    assert "nvidia-driver-pinning-580.95.05" in [package.name for package in found.packages]
    found = plan_driver(SYSTEMS["almalinux10"][0], MACHINES["l40s"][0], replace(REQUEST, version="580.95.05"))
    assert found.prepare[-1].argv[-1] == "*nvidia*580.95.05*"


def test_a_version_is_no_beginning_of_another_one():
    asked = replace(REQUEST, version="580.10")
    found = plan_driver(SYSTEMS["debian12"][0], MACHINES["l40s"][0], asked, ["580.105.08-1"])
    assert found.halt == "the repository has no driver 580.10; it has 580.105.08; correct cuda_version"


@pytest.mark.parametrize(
    ("offered", "sentence"),
    [
        (["580.95.05-1"], "the repository has no driver 580.105.08; it has 580.95.05; correct cuda_version"),
        ([], "the repository has no driver 580.105.08; it has none; correct cuda_version"),
    ],
)
def test_a_version_that_is_gone(offered, sentence):
    found = plan_driver(SYSTEMS["debian12"][0], MACHINES["l40s"][0], replace(REQUEST, version="580.105.08"), offered)
    assert found.halt == sentence


def test_a_repository_that_only_has_what_is_too_old():
    found = plan_driver(SYSTEMS["debian12"][0], MACHINES["l40s"][0], REQUEST, ["580.54.03-1"])
    assert found.halt.startswith(
        "release 0.33.0 needs driver 580.65.06 or newer, vendor packages of debian 12 would be"
    )


def test_a_mirror_stands_for_the_vendors_host():
    requested = replace(
        REQUEST, source="mirror", mirror="http://mirror.example/cuda/", epel="http://mirror.example/epel"
    )
    cuda, epel = "http://mirror.example/cuda/rhel9/x86_64/", "http://mirror.example/epel/9/Everything/x86_64/"
    found = plan_driver(SYSTEMS["rocky9"][0], MACHINES["l40s"][0], requested)
    assert [repo.url for repo in found.repositories] == [epel, cuda]
    assert found.repositories[1].key.url == f"{cuda}D42D0685.pub"


def test_arm_servers_have_a_directory_of_their_own():
    host = replace(SYSTEMS["ubuntu2404"][0], architecture="aarch64")
    assert (
        plan_driver(host, machine(("10de:2342", 1, "0302")), REQUEST).repositories[0].url == f"{CUDA}/ubuntu2404/sbsa/"
    )


def test_debians_own_packages():
    requested = replace(REQUEST, minimum="535.54", source="distro")
    found = plan_driver(SYSTEMS["debian13"][0], MACHINES["l40s"][0], requested)
    repository = found.repositories[0]
    assert (repository.suites, repository.components) == (
        ("trixie", "trixie-updates"),
        ("contrib", "non-free", "non-free-firmware"),
    )
    assert [package.spec("apt") for package in found.packages][3:] == [
        "nvidia-kernel-dkms=550.*",
        "nvidia-smi=550.*",
        "libcuda1=550.*",
        "firmware-nvidia-gsp=550.*",
        "nvidia-persistenced",
    ]
    gh200 = plan_driver(SYSTEMS["debian13"][0], machine(("10de:2342", 1, "0302")), requested)
    assert "nvidia-open-kernel-dkms" in [package.name for package in gh200.packages]


def test_ubuntus_own_packages():
    found = plan_driver(SYSTEMS["ubuntu2404"][0], MACHINES["hgx_h200"][0], replace(REQUEST, source="distro"))
    assert found.repositories == ()
    assert [package.spec("apt") for package in found.packages][3:] == [
        "nvidia-dkms-580-server-open=580.*",
        "nvidia-headless-580-server-open=580.*",
        "nvidia-utils-580-server=580.*",
        "nvidia-fabricmanager-580=580.*",
        "libnvidia-nscq-580=580.*",
    ]


@pytest.mark.parametrize(
    ("system_name", "machine_name", "requested", "sentence"),
    [
        ("debian13", "l40s", {"source": "distro"}, "would be branch 550; set cuda_source to vendor or mirror"),
        ("debian13", "hgx_h100", {"source": "distro", "minimum": "550.1"}, "which debian 13 does not have of its own"),
        ("rhel9", "l40s", {"source": "distro"}, "rhel 9.6 has no NVIDIA driver of its own"),
        ("debian12", "l40s", {"version": "570"}, "would be branch 570; correct cuda_version"),
        ("debian12", "v100", {"version": "595"}, "driver branch 595 does not support v100, 580 is the last"),
        ("debian12", "hgx_b200", {"version": "565", "minimum": "550.1"}, "driver branch 565 does not support b200"),
        ("debian12", "l40s", {"source": "none"}, "no NVIDIA driver is on the host and cuda_source is none"),
        (
            "debian12",
            "l40s",
            {"policy": "halt"},
            "cuda_policy is halt, and a driver is to be installed: install linux-",
        ),
    ],
)
def test_what_cannot_be_had_halts_with_the_reason(system_name, machine_name, requested, sentence):
    found = plan_driver(SYSTEMS[system_name][0], MACHINES[machine_name][0], replace(REQUEST, **requested))
    assert sentence in found.halt
    assert not (found.packages or found.repositories or found.files or found.finish)


# The first driver of each, by the README of each release of NVIDIA's open kernel modules.
@pytest.mark.parametrize(
    ("pci_id", "count", "branch"),
    [
        ("10de:2901", 8, "570"),
        ("10de:3182", 8, "580"),
        ("10de:31c2", 4, "580"),
        ("10de:2e12", 1, "580"),
        ("10de:2bb1", 1, "570"),
        ("10de:2bb5", 8, "575"),
        ("10de:2bb9", 8, "580"),
        ("10de:2c3a", 1, "580"),
        ("10de:2c31", 1, "570"),
        ("10de:2b8c", 1, "580"),
        ("10de:2335", 8, "570"),
    ],
)
def test_the_driver_is_new_enough_for_the_chips_also_with_an_old_release(pci_id, count, branch):
    host, hardware = SYSTEMS["debian13"][0], machine((pci_id, count, "0302"))
    found = plan_driver(host, hardware, replace(REQUEST, minimum="570.26"))
    assert found.halt is None
    kernel = next(package for package in found.packages if package.name == "nvidia-kernel-open-dkms")
    assert kernel.version == f"{branch}.*"
    # The newest of the branch, once the repository is known.
    offered = [f"{branch}.300.01-1", f"{branch}.1.01-1"]
    exact = plan_driver(host, hardware, replace(REQUEST, minimum="570.26"), offered)
    assert f"{branch}.300.01-*" in {package.version for package in exact.packages}


@pytest.mark.parametrize(
    ("pci_id", "version", "offered", "message"),
    [
        ("10de:3182", "570", None, "driver branch 570 does not support b300, 580.82.07 is the first that does"),
        ("10de:3182", "580.65.06", ["580.65.06-1"], "driver 580.65.06 does not support b300, 580.82.07 is the first"),
        ("10de:2e12", "575", None, 'driver branch 575 does not support gb10, 580.119.02 is the first that does; set '
         'cuda_version to "580" or newer'),
        ("10de:2e12", "580.105.08", ["580.105.08-1"], "driver 580.105.08 does not support gb10, 580.119.02 is"),
        ("10de:2bb5", "570", None, "driver branch 570 does not support rtx_pro_6000, 575.57.08 is the first that does"),
    ],
)  # fmt: skip
def test_a_driver_that_is_older_than_the_chips(pci_id, version, offered, message):
    asked = replace(REQUEST, minimum="570.26", version=version)
    found = plan_driver(SYSTEMS["debian13"][0], machine((pci_id, 1, "0302")), asked, offered)
    assert message in found.halt


def test_the_driver_that_a_dgx_spark_is_sold_with_stays():
    packages = {"nvidia-dkms-580-open": "580.95.05-1", "nvidia-utils-580": "580.95.05-1"}
    host = replace(SYSTEMS["ubuntu2404"][0], packages=packages, modules={"nvidia": Module("580.95.05")})
    found = plan_driver(host, machine(("10de:2e12", 1, "0302")), REQUEST)
    assert found.halt is None and not found.replaces


def test_a_tray_of_a_rack_is_planned_alone_and_a_note_says_so():
    found = plan_driver(SYSTEMS["ubuntu2404"][0], machine(("10de:2941", 4, "0302")), REQUEST)
    assert not [package for package in found.packages if "fabricmanager" in package.name]
    assert any("NVLink to other trays of the rack needs nvidia-imex" in note for note in found.notes)


def test_an_operating_system_that_is_not_supported():
    found = plan_driver(system("debian", "11", "bullseye", "5.10.0"), MACHINES["l40s"][0], REQUEST)
    assert found.halt.startswith("debian 11 is not supported for NVIDIA's driver; supported are Debian 12 and 13,")


def test_chips_that_no_module_serves_together():
    found = plan_driver(SYSTEMS["debian12"][0], machine(V100, ("10de:2901", 1, "0302")), REQUEST)
    assert found.halt.startswith("v100 needs the proprietary kernel modules and b200 the open ones")


def test_old_and_new_that_the_open_modules_serve():
    found = plan_driver(SYSTEMS["debian12"][0], machine(T4, ("10de:2bb5", 1, "0302")), REQUEST)
    assert "nvidia-kernel-open-dkms" in found.hold


def test_chips_of_a_board_in_a_virtual_machine_need_no_fabric_manager():
    assert machine(("10de:2335", 1, "0302")).fabric == ""
    assert machine(("10de:2901", 4, "0302")).fabric == ""
    # Its ports are not readable here.
    assert machine(("10de:2901", 8, "0302")).fabric == "nvlink5"


def test_no_chip_at_all():
    assert plan_driver(SYSTEMS["debian12"][0], machine(), REQUEST).halt.startswith("no NVIDIA chip is on PCI")


# A host with a driver.

INSTALLED = {
    "linux-image-amd64": "6.1.119-1",
    "linux-headers-6.1.0-28-amd64": "6.1.119-1",
    "linux-headers-amd64": "6.1.119-1",
    "dkms": "3.0.10",
    "nvidia-kernel-open-dkms": "580.95.05-1",
    "nvidia-open": "580.95.05-1",
    "libcuda1": "580.95.05-1",
    "nvidia-container-toolkit": "1.20.0-1",
}
LOADED = {"nvidia": Module("580.95.05", "AB12")}
BUILT = (DkmsBuild("nvidia", "580.95.05", DEB_KERNEL, "installed"),)


def working(**changes):
    host = replace(SYSTEMS["debian12"][0], packages=INSTALLED, modules=LOADED, dkms=BUILT)
    return replace(host, **changes)


@pytest.mark.parametrize("policy", ["retain", "install", "halt"])
@pytest.mark.parametrize("source", ["vendor", "none"])
def test_a_driver_that_works_is_left_alone(policy, source):
    found = plan_driver(working(), MACHINES["l40s"][0], replace(REQUEST, policy=policy, source=source))
    assert found.halt is None
    assert (found.repositories, found.prepare, found.packages, found.remove) == ((), (), (), ())
    assert (found.finish, found.reboot, found.notes) == ((), (), ())
    assert found.hold == ("libcuda1", "nvidia-kernel-open-dkms", "nvidia-open")


def test_nothing_is_held_where_the_site_does_not_want_it():
    assert plan_driver(working(), MACHINES["l40s"][0], replace(REQUEST, hold=False)).hold == ()


@pytest.mark.parametrize("policy", ["retain", "halt"])
def test_a_driver_below_the_releases_minimum_halts(policy):
    requested = replace(REQUEST, minimum="590.44.01", policy=policy)
    assert plan_driver(working(), MACHINES["l40s"][0], requested).halt == (
        f"driver 580.95.05 is on the host, release 0.33.0 needs 590.44.01 or newer, and cuda_policy is {policy} with "
        "cuda_source vendor; set cuda_policy to install and a source, or choose a release that works with "
        "it"
    )


def test_a_driver_below_the_minimum_is_replaced_where_that_is_allowed():
    requested = replace(REQUEST, minimum="590.44.01", policy="install")
    found = plan_driver(working(), MACHINES["l40s"][0], requested, ["590.48.01-1"])
    assert [package.spec("apt") for package in found.packages] == [
        "nvidia-driver-pinning-590",
        "nvidia-kernel-open-dkms=590.48.01-*",
        "nvidia-open=590.48.01-*",
        "nvidia-persistenced=590.48.01-*",
    ]
    assert found.reboot == ("the loaded driver is 580.95.05, 590.48.01 takes its place",)
    assert "modprobe nvidia" not in [" ".join(command.argv) for command in found.finish]


def test_another_branch_is_only_taken_where_that_is_allowed():
    hardware = MACHINES["l40s"][0]
    retained = plan_driver(working(), hardware, replace(REQUEST, version="595"))
    assert retained.packages == ()
    assert retained.notes == ("driver 580.95.05 is retained, cuda_version asks for 595",)
    assert (
        "cuda_version asks for 595"
        in plan_driver(working(), hardware, replace(REQUEST, version="595", policy="halt")).halt
    )
    assert plan_driver(working(), hardware, replace(REQUEST, version="595", policy="install")).packages


def test_a_driver_that_came_in_no_package_is_not_overwritten():
    host = working(packages={})
    assert plan_driver(host, MACHINES["l40s"][0], REQUEST).halt is None
    found = plan_driver(host, MACHINES["l40s"][0], replace(REQUEST, version="595", policy="install"))
    assert found.halt.endswith(
        "was not installed from packages, which cannot replace it; remove it with nvidia-uninstall"
    )


def test_the_fabric_manager_is_brought_to_the_drivers_version_and_nothing_else():
    host = working(packages={**INSTALLED, "nvidia-fabricmanager": "580.65.06-1"})
    found = plan_driver(host, MACHINES["hgx_h200"][0], REQUEST)
    assert [package.spec("apt") for package in found.packages] == [
        "nvidia-fabricmanager=580.95.05-*",
        "libnvidia-nscq=580.95.05-*",
    ]
    assert found.repositories
    assert "nvidia-fabricmanager" in found.hold
    halted = plan_driver(host, MACHINES["hgx_h200"][0], replace(REQUEST, source="none")).halt
    assert halted.startswith("this machine's NVSwitches need nvidia-fabricmanager=580.95.05-*, exactly the driver's")


def test_a_fabric_manager_of_the_right_version_is_left_alone_wherever_it_came_from():
    host = working(packages={**INSTALLED, "nvidia-fabricmanager-580": "580.95.05-0ubuntu0.24.04.1"})
    assert plan_driver(host, MACHINES["hgx_h200"][0], REQUEST).packages == ()


def test_a_fabric_manager_with_nothing_to_manage_goes():
    host = working(packages={**INSTALLED, "nvidia-fabricmanager": "580.95.05-1"})
    found = plan_driver(host, MACHINES["l40s"][0], REQUEST)
    assert found.remove == ("nvidia-fabricmanager",)
    assert "nvidia-fabricmanager" not in found.hold
    assert "remove nvidia-fabricmanager" in plan_driver(host, MACHINES["l40s"][0], replace(REQUEST, policy="halt")).halt


def test_a_new_kernel_gets_headers_and_modules_before_it_boots():
    host = working(next_kernel="6.1.0-31-amd64")
    found = plan_driver(host, MACHINES["l40s"][0], REQUEST)
    assert [package.name for package in found.packages] == ["linux-headers-6.1.0-31-amd64"]
    assert [" ".join(command.argv) for command in found.finish] == ["dkms autoinstall -k 6.1.0-31-amd64"]
    assert found.repositories == ()
    assert found.reboot == ()


def test_an_upgrade_that_waits_for_its_reboot():
    host = working(modules={"nvidia": Module("580.65.06", "AA")})
    found = plan_driver(host, MACHINES["l40s"][0], REQUEST)
    assert found.packages == ()
    assert found.reboot == ("the loaded driver is 580.65.06, the installed one is 580.95.05",)


def test_nouveau_makes_a_reboot_needed():
    found = plan_driver(working(modules={"nouveau": Module()}), MACHINES["l40s"][0], REQUEST)
    assert found.reboot == ("nouveau is loaded and holds the chips",)
    assert [" ".join(command.argv) for command in found.finish] == [APT_REBUILD]


def test_an_install_that_was_cut_short_is_taken_up_again():
    host = working(modules={}, dkms=(DkmsBuild("nvidia", "580.95.05", "", "added"),))
    found = plan_driver(host, MACHINES["l40s"][0], REQUEST)
    assert [" ".join(command.argv) for command in found.finish] == [
        f"dkms autoinstall -k {DEB_KERNEL}",
        "modprobe nvidia",
    ]


def test_the_other_flavour_and_the_vendors_keyring_package_go():
    packages = {**SYSTEMS["ubuntu2404"][0].packages, "nvidia-dkms-575": "575.57.08-1", "cuda-keyring": "1.1-1"}
    host = replace(SYSTEMS["ubuntu2404"][0], packages=packages)
    found = plan_driver(host, MACHINES["l40s"][0], replace(REQUEST, policy="install"))
    assert (found.remove_first, found.remove) == (("cuda-keyring",), ("nvidia-dkms-575",))
    assert any(note.startswith("cuda-keyring is removed") for note in found.notes)


def test_a_fabric_manager_of_an_older_name_is_replaced():
    packages = {"nvidia-dkms-570-open": "570.124.06-1", "nvidia-fabricmanager-570": "570.124.06-1"}
    host = replace(SYSTEMS["ubuntu2404"][0], packages=packages, modules={"nvidia": Module("570.124.06")})
    found = plan_driver(host, MACHINES["hgx_h100"][0], replace(REQUEST, policy="install"), ["580.95.05-0ubuntu1"])
    assert found.remove == ("nvidia-dkms-570-open", "nvidia-fabricmanager-570")
    assert "nvidia-fabricmanager=580.95.05-*" in [package.spec("apt") for package in found.packages]


def test_secure_boot_names_the_modules_that_ubuntu_signed():
    locked = {"secure_boot": True, "signing_key_enrolled": False}
    halt = plan_driver(replace(SYSTEMS["ubuntu2404"][0], **locked), MACHINES["l40s"][0], REQUEST).halt
    assert "(linux-modules-nvidia-580-server-open-generic), which are retained, or switch Secure Boot off" in halt
    assert "linux-modules" not in plan_driver(replace(SYSTEMS["rhel9"][0], **locked), MACHINES["l40s"][0], REQUEST).halt


@pytest.mark.parametrize(("enrolled", "halts"), [(True, False), (False, True), (None, True)])
def test_secure_boot_needs_an_enrolled_key_before_anything_changes(enrolled, halts):
    host = replace(SYSTEMS["ubuntu2404"][0], secure_boot=True, signing_key_enrolled=enrolled)
    halt = plan_driver(host, MACHINES["l40s"][0], REQUEST).halt
    assert (halt is not None) == halts
    if halts:
        assert "mokutil --import /var/lib/shim-signed/mok/MOK.der" in halt
    assert plan_driver(replace(working(), secure_boot=True), MACHINES["l40s"][0], REQUEST).halt is None


def test_modules_that_the_distribution_has_built_count_as_installed():
    packages = {"linux-modules-nvidia-580-server-open-generic": "6.8.0-50.51", "nvidia-utils-580-server": "580.95.05-0"}
    host = replace(SYSTEMS["ubuntu2404"][0], packages=packages, modules=LOADED)
    found = plan_driver(host, MACHINES["l40s"][0], REQUEST)
    assert (found.halt, found.packages, found.finish) == (None, (), ())


def test_a_plan_is_plain_data():

    found = plan_driver(SYSTEMS["rhel9"][0], MACHINES["hgx_b200"][0], REQUEST)
    assert found.repositories[1].key.id == "D42D0685"


@pytest.mark.parametrize("policy", ["retain", "install"])
@pytest.mark.parametrize("source", ["vendor", "none"])
def test_a_driver_that_no_package_owns_is_left_as_it_is(policy, source):
    host = working(packages={}, dkms=())
    found = plan_driver(host, MACHINES["l40s"][0], replace(REQUEST, policy=policy, source=source))
    assert found == DriverPlan(notes=("driver 580.95.05 was not installed from packages; it stays unchanged",))
    older = plan_driver(host, MACHINES["l40s"][0], replace(REQUEST, minimum="590.1", policy="install"))
    assert older.halt.startswith("driver 580.95.05 was not installed from packages, which cannot replace it")
