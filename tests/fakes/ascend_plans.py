# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts, chips, installations and files for plans of Huawei's driver."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import (
    Cpu,
)
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import (
    PciFunction,
)
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import (
    match,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import (
    Installed,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cann.chips import (
    hardware_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cann.installers import (
    read_files,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    DkmsBuild,
    Host,
    Module,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.cann.plan import (
    CannRequest,
    MatrixRow,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    load_catalogue,
)

CATALOGUE = load_catalogue([])
ROW = MatrixRow("9.1.0", "26.0.RC1", "9.0.0.0.205")
REQUEST = CannRequest("0.23.0", ROW, licence_accepted=True)
INSTALL = replace(REQUEST, policy="install")
SHA = "ab" * 32
MODULE = "drv_davinci_intf_host"

DEB_KERNEL, UBUNTU_KERNEL = "6.1.0-28-amd64", "5.15.0-25-generic"
EULER_KERNEL, KYLIN_KERNEL = "6.6.0-144.0.0.130.oe2403sp3.aarch64", "4.19.90-52.22.v2207.ky10.aarch64"


def system(distribution, version, codename, arch, kernel, packages=()):
    """Return a host whose kernel is up to date, with these packages by name."""
    return Host(distribution, version, codename, arch, kernel, kernel, False, packages=dict(packages))


def headers(kernel):
    """Return what the driver is built with on systems with dnf."""
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
    """Return the chips of a machine; each group has a PCI id and a number."""
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
    """Return a file as a site lists it."""
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
    """Return the packages of a plan as the host's package manager takes them."""
    return [package.spec(host.manager) for package in found.packages]


def argvs(found):
    """Return name and command line of each installer of a plan, with FILE in place of its path."""
    return [(one.name, " ".join(one.argv).replace(one.path, "FILE")) for one in found.installers]
