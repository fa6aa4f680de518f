# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD: the repositories of its driver and of ROCm, and what its driver and tools show of a machine."""

from __future__ import annotations

import os
from typing import Mapping, Sequence

from tests.standins import common
from tests.standins.packages import Package, dkms_package, stub
from tests.standins.place import Answer, Place
from tests.standins.repositories import Repository
from tests.standins.vendor import Options, Vendor
from tests.standins.vendors import amd_smi

# The driver's repository has the names of Ubuntu for Debian too.
SUITES = {
    "debian12": "jammy",
    "debian13": "noble",
    "ubuntu2204": "jammy",
    "ubuntu2404": "noble",
    "ubuntu2604": "resolute",
}
RELEASES = {"jammy": "22.04", "noble": "24.04", "resolute": "26.04"}
# Of each release of the driver: the version of its module, and the version that the module itself has.
DRIVERS = {
    "30.30.3": ("6.16.13", "6.16.13"),
    "31.40.1": ("6.19.14", "6.19.14"),
    "31.50": ("7.1.3", "7.1.3.31500000"),
}
BUILD = "2390945"
# ROCm with its driver, where a mirror is to have it.
ROCM = {"31.40.1": "7.14.0", "31.50": "10.0.0"}
MODULES = {"amdgpu": "amdxcp,amdttm", "amdttm": "amdkcl", "amdxcp": "amdkcl", "amdkcl": ""}
GENERATIONS = ("gfx942", "gfx950", "gfx1201")
DEVICES = {"amdgpu": ("/dev/kfd", "/dev/dri/renderD*")}
PROPERTIES = (
    "cpu_cores_count 0\nsimd_count {simds}\nlocation_id {location}\ndomain {domain}\nvendor_id 4098\n"
    "device_id {device}\ngfx_target_version {target}\ndrm_render_minor {minor}\n"
)


class Amd(Vendor):
    """AMD.

    Faults of its tools, as files in /var/lib/standin: ``older-shape`` (amd-smi answers as before ROCm 7),
    ``no-udev`` (device nodes come up with root's group), beside those of every tool.
    """

    name = "amd"
    autoload = ("amdgpu",)
    tools = ("amd-smi", "rocm-smi")

    def repositories(self, options: Options) -> Sequence[Repository]:
        suite = SUITES[options.distribution]
        found = []
        for driver in options.versions:
            packages = (*common.packages(options), *_driver(driver, suite))
            path = f"amdgpu/{driver}/ubuntu"
            found.append(Repository(path, packages, "rocm/rocm.gpg.key", "repo.radeon.com", suite))
        rocm = [ROCM[driver] for driver in options.versions if driver in ROCM]
        for layout, key, versions in (
            ("rocm/core/packages", "rocm/gpg/packages.gpg", [version for version in rocm if version[:2] == "10"]),
            ("rocm/packages-multi-arch", "rocm/packages-multi-arch/gpg/rocm.gpg", [v for v in rocm if v[:2] == "7."]),
        ):
            if versions:
                packages = tuple(package for version in versions for package in _userspace(version))
                found.append(Repository(f"{layout}/{options.distribution}", packages, key, "AMD", "stable"))
        return found

    def answer(self, tool: str, argv: Sequence[str], place: Place) -> Answer:
        return amd_smi.amd_smi(argv, place) if tool == "amd-smi" else amd_smi.rocm_smi(argv, place)

    def shows(self, place: Place, module: str, info: Mapping[str, str]) -> dict[str, str]:
        if module != "amdgpu":
            return {}
        about = place.machine().chip
        files = {f"sys/{amd_smi.NODES}/0/properties": "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\n"}
        nodes = ["dev/kfd"]
        for number, address in enumerate(amd_smi.chips_of(place)):
            domain, bus, rest = address.split(":")
            values = {
                "simds": about["compute_units"] * 4,
                "location": int(bus, 16) << 8 | int(rest.split(".")[0], 16) << 3,
                "domain": int(domain, 16),
                "device": int(about["ids"][0].partition(":")[2], 16),
                "target": about["gfx_target_version"],
                "minor": 128 + number,
            }
            files[f"sys/{amd_smi.NODES}/{number + 1}/properties"] = PROPERTIES.format(**values)
            home = f"sys/class/drm/card{number}/device"
            files[f"{home}/fw_version/mec_fw_version"] = f"0x{about['mec_firmware']:08x}"
            files[f"{home}/mem_info_vram_total"] = str(about["memory_mib"] * 2**20)
            nodes.append(f"dev/dri/renderD{128 + number}")
        # Device nodes are where the host has its own: a container has none of these.
        return {**files, **{f"../{_node(place, path)}": "" for path in nodes}}

    def nodes(self, module: str) -> tuple[str, ...]:
        return DEVICES.get(module, ())


VENDOR = Amd()


def _node(place: Place, path: str) -> str:
    """Make a device node as udev does: for the group render, where there is one."""
    groups = dict(
        line.split(":")[:3:2] for line in (place.root / "etc/group").read_text().splitlines() if line.count(":") == 3
    )
    file = place.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    file.chmod(0o660)
    if "render" in groups and place.fault("no-udev") is None:
        os.chown(file, -1, int(groups["render"]))
    return path


def _driver(driver: str, suite: str) -> list[Package]:
    """Return the packages of one driver: the firmware's counts in another way than the module's."""
    source, module = DRIVERS[driver]
    numbers = [int(number) for number in driver.split(".")] + [0, 0]
    code = f"{numbers[0]}{numbers[1]:02d}{numbers[2]:02d}00"
    tail = f"{code}-{BUILD}.{RELEASES[suite]}"
    firmware = f"{numbers[0]}.{numbers[1]}.{numbers[2]}.0.{tail}"
    return [
        dkms_package(
            "amdgpu-dkms",
            f"1:{source}.{tail}",
            "amdgpu",
            f"{source}-{BUILD}.{RELEASES[suite]}",
            MODULES,
            depends=f"dkms, amdgpu-dkms-firmware (= {firmware})",
            MODULE_VERSION=module,
            LICENSE="GPL and additional rights",
        ),
        Package("amdgpu-dkms-firmware", firmware, files={"lib/firmware/updates/amdgpu/version": f"{driver}\n"}),
    ]


def _userspace(rocm: str) -> list[Package]:
    """Return ROCm's packages of one release: one for each generation of chips, and what they have in common.

    Releases lie side by side below /opt/rocm; the one that came last is what /opt/rocm/core points to.
    """
    short = rocm.rpartition(".")[0]
    home = f"opt/rocm/core-{short}"
    files = {
        f"{home}/.info/version": f"{rocm}\n",
        f"{home}/bin/amd-smi": stub("amd-smi"),
        f"{home}/bin/rocm-smi": stub("rocm-smi"),
    }
    link = f'[ "$1" = configure ] || exit 0\nln -sfn core-{short} /opt/rocm/core\n'
    return [
        Package(f"amdrocm-core{short}", f"{rocm}-1", files=files, postinst=link),
        *(Package(f"amdrocm{short}-{name}", f"{rocm}-1", f"amdrocm-core{short}") for name in GENERATIONS),
    ]
