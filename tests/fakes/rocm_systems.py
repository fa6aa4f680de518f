# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating systems and machines that AMD's driver is planned for, and what each of them is given, word by word."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import Cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciFunction
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import match
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import STACK, RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import release_of
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.chips import chips_of
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DkmsBuild, Host, Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import RocmRequest

CATALOGUE = load_catalogue([])
RADEON = "https://repo.radeon.com"
CORE = "https://stable.repo.amd.com"
EPEL = "https://dl.fedoraproject.org/pub/epel"
RADEON_KEY = f"{RADEON}/rocm/rocm.gpg.key"
APT_KEY, RPM_KEY = "/etc/apt/keyrings/baremetal-radeon.asc", "/etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-radeon"
REQUEST = RocmRequest("0.33.0", release_of("10.0.0"), minimum="6.14.14")
SHOWN = RocmHostState()

DEB_KERNEL, UBUNTU_KERNEL = "6.12.48+deb13-amd64", "6.8.0-50-generic"
EL9_KERNEL, EL10_KERNEL = "5.14.0-570.12.1.el9_6.x86_64", "6.12.0-124.8.1.el10_1.x86_64"
DEBIAN_IMAGES = {"linux-image-amd64": "6.12.48-1", f"linux-image-{DEB_KERNEL}": "6.12.48-1"}
UBUNTU_IMAGES = {"linux-image-generic": "6.8.0-50.51", f"linux-image-{UBUNTU_KERNEL}": "6.8.0-50.51"}
DEBIAN_EXTRAS = [f"linux-headers-{DEB_KERNEL}", "linux-headers-amd64", "dkms"]
UBUNTU_EXTRAS = [
    f"linux-headers-{UBUNTU_KERNEL}",
    "linux-headers-generic",
    "dkms",
    f"linux-modules-extra-{UBUNTU_KERNEL}",
]


def _el(kernel):
    return [f"kernel-devel-{kernel}", f"kernel-devel-matched-{kernel}", "dkms", f"kernel-headers-{kernel}"]


def _driver(code):
    return [f"amdgpu-dkms=*.{code}-*", f"amdgpu-dkms-firmware=*.{code}-*"]


DEB_DRIVER = _driver("31500000")
RPM_DRIVER = ["amdgpu-dkms-7.1.3*", "amdgpu-dkms-firmware"]


def system(distribution, version, codename, kernel, packages=()):
    return Host(
        distribution,
        version,
        codename,
        "x86_64",
        kernel,
        kernel,
        False,
        packages=dict(packages),
        groups={"render": (), "video": ("mia",)},
        users={"mia": "mia", "vllm": "vllm"},
    )


def ubuntu(version, codename):
    return system("ubuntu", version, codename, UBUNTU_KERNEL, UBUNTU_IMAGES)


# Of each system: the host, the suite or directory of the driver's repository, the tag of the newer repositories, what
# the kernel needs besides.
SYSTEMS = {
    "debian12": (system("debian", "12", "bookworm", DEB_KERNEL, DEBIAN_IMAGES), "jammy", "debian12", DEBIAN_EXTRAS),
    "debian13": (system("debian", "13", "trixie", DEB_KERNEL, DEBIAN_IMAGES), "noble", "debian13", DEBIAN_EXTRAS),
    "ubuntu2204": (ubuntu("22.04", "jammy"), "jammy", "ubuntu2204", UBUNTU_EXTRAS),
    "ubuntu2404": (ubuntu("24.04", "noble"), "noble", "ubuntu2404", UBUNTU_EXTRAS),
    "ubuntu2604": (ubuntu("26.04", "resolute"), "resolute", "ubuntu2604", UBUNTU_EXTRAS),
    "rhel9": (system("rhel", "9.6", "", EL9_KERNEL), "9.6", "rhel9", _el(EL9_KERNEL)),
    "rocky9": (system("rocky", "9.8", "", EL9_KERNEL), "9.8", "rhel9", _el(EL9_KERNEL)),
    "oracle9": (system("ol", "9.7", "", EL9_KERNEL), "9.6", "rhel9", _el(EL9_KERNEL)),
    "rhel10": (system("rhel", "10.0", "", EL10_KERNEL), "10", "rhel10", _el(EL10_KERNEL)),
    "almalinux10": (system("almalinux", "10.2", "", EL10_KERNEL), "10.2", "rhel10", _el(EL10_KERNEL)),
    "centos10": (system("centos", "10", "", EL10_KERNEL), "10.2", "rhel10", _el(EL10_KERNEL)),
}


def machine(*groups):
    """The chips of a machine: of each group a PCI id and a number of them."""
    functions = []
    for pci_id, count in groups:
        vendor, device = pci_id.split(":")
        first = len(functions)
        functions += [PciFunction(f"0000:{first + n:02x}:00.0", vendor, device, "1200") for n in range(count)]
    cpu = Cpu("x86_64", "EPYC", ("avx2",), 2, 4, 1, 1000)
    return chips_of(STACK, match(functions, CATALOGUE, cpu).as_dict(), CATALOGUE)


# Of each machine: its chips, and their generations.
MACHINES = {
    "mi300x": (machine(("1002:74a1", 8)), ["gfx942"]),
    "mi355x": (machine(("1002:75a3", 8)), ["gfx950"]),
    "mi210": (machine(("1002:740f", 4)), ["gfx90a"]),
    "r9700": (machine(("1002:7551", 2)), ["gfx1201"]),
    "mi210_r9700": (machine(("1002:740f", 1), ("1002:7551", 1)), ["gfx1201", "gfx90a"]),
    "mi100": (machine(("1002:738c", 1)), ["gfx908"]),
}
MI300X, MI355X, R9700 = (MACHINES[name][0] for name in ("mi300x", "mi355x", "r9700"))

INSTALLED = {
    **DEBIAN_IMAGES,
    f"linux-headers-{DEB_KERNEL}": "6.12.48-1",
    "linux-headers-amd64": "6.12.48-1",
    "dkms": "3.2.2-1",
    "amdgpu-dkms": "1:6.16.13.30300300-2255209.24.04",
    "amdgpu-dkms-firmware": "30.30.3.0.30300300-2255209.24.04",
}
LOADED = {"amdgpu": Module("6.16.13", "AB12"), "amdttm": Module(None, "CD"), "amdkcl": Module(None, "EF")}
BUILT = (DkmsBuild("amdgpu", "6.16.13-2255209.24.04", DEB_KERNEL, "installed"),)
OWN = {"amdgpu": Module(None, "0WN")}
# A driver that AMD's packages brought.
DRIVEN = RocmHostState(driven=tuple(chip.address for chip in MI300X), has_module=True, disk="6.16.13")


def working(**changes):
    """A Debian 13 with AMD's driver 30.30.3 (ROCm 7.2.3), whole."""
    host = replace(SYSTEMS["debian13"][0], packages=INSTALLED, modules=LOADED, dkms=BUILT)
    return replace(host, **changes)


def specs(found, host):
    return [package.spec(host.manager) for package in found.packages]


def commands(found):
    return [" ".join(command.argv) for command in found.finish]


def asked(rocm, **changes):
    """A request for this ROCm."""
    return replace(REQUEST, rocm=release_of(rocm), is_asked=True, **changes)
