# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei: its apt repository with driver, firmware and CANN, its .run files, and what they leave on a machine."""

from __future__ import annotations

from typing import Mapping, Sequence

from tests.standins import common
from tests.standins.packages import KEY, TOOL, Package
from tests.standins.place import Answer, Place
from tests.standins.repositories import Repository
from tests.standins.vendor import Options, Vendor
from tests.standins.vendors import huawei_install, huawei_smi

# Packages of driver and firmware by what the chip is called in the names of files.
PACKAGES = {
    "910b": ("ascend910b-driver", "ascend910b-firmware"),
    "A3": ("atlas-a3-hdk-npu-driver", "atlas-a3-hdk-npu-firmware"),
}
KEYRING = "/usr/share/keyrings/cann-archive-keyring.gpg"
SITE = "debian"


class Huawei(Vendor):
    """Huawei. A version is that of the driver; its firmware has its own number.

    Settings: ``chip`` (910b, A3), ``cann`` (a version; without it there is no CANN), ``arch`` of .run files.

    Faults, as files in /var/lib/standin: ``hot-reset-fails`` (an installer ends with 2 and what runs stays),
    ``installer-fails`` (it ends with 1; the file is what it writes into its log), ``lost-chip`` (the address of a chip
    that npu-smi does not list), ``alarm`` (the address of one that is not well), ``old-firmware`` (the firmware of this
    version runs, whatever is installed), beside those of every tool.
    """

    name = "huawei"
    autoload = tuple(huawei_install.MODULES)
    tools = ("npu-smi",)

    def repositories(self, options: Options) -> Sequence[Repository]:
        chip = options.setting("chip", "910b")
        hdk = [*common.packages(options), *(Package(name, "99") for name in ("make", "gcc", "net-tools"))]
        for version in options.versions:
            for package, component in zip(PACKAGES[chip], ("driver", "firmware")):
                number = version.lower() if component == "driver" else huawei_install.firmware_of(version)
                hdk.append(_package(package, number, huawei_install.file_name(component, chip, number, "x86-64")))
        keyring = Package(
            "cann-keyring",
            "1.0.0",
            files={
                KEYRING.lstrip("/"): KEY,
                "etc/apt/sources.list.d/ascend-cann.list": f"deb [signed-by={KEYRING}] https://site.example cann x\n",
            },
            architecture="all",
        )
        found = [Repository(SITE, (keyring,), f"{SITE}/key.asc", "CANN"), self._suite("hdk", hdk)]
        return [*found, self._suite("cann", _cann(options, chip))] if options.setting("cann") else found

    def _suite(self, suite: str, packages: Sequence[Package]) -> Repository:
        return Repository(SITE, tuple(packages), f"{SITE}/key.asc", "CANN", suite=suite)

    def installers(self, options: Options) -> Sequence[str]:
        chip, arch, cann = (
            options.setting("chip", "910b"),
            options.setting("arch", "x86-64"),
            options.setting("cann"),
        )
        names = []
        for version in options.versions:
            names.append(huawei_install.file_name("driver", chip, version.lower(), arch))
            names.append(huawei_install.file_name("firmware", chip, huawei_install.firmware_of(version), arch))
        parts = ("toolkit", "ops", "nnal") if cann else ()
        return [*names, *(huawei_install.file_name(part, chip, cann, arch) for part in parts)]

    def install(self, file: str, argv: Sequence[str], place: Place) -> Answer:
        return huawei_install.install(file, argv, place)

    def answer(self, tool: str, argv: Sequence[str], place: Place) -> Answer:
        return huawei_smi.answer(argv, place)

    def shows(self, place: Place, module: str, info: Mapping[str, str]) -> dict[str, str]:
        if module == huawei_install.MODULE:
            # The chips start with the firmware that is installed, and their nodes are there.
            huawei_install.run_firmware(place)
            huawei_install.make_nodes(place)
        return {}

    def nodes(self, module: str) -> tuple[str, ...]:
        return ("/dev/davinci*", "/dev/devmm_svm", "/dev/hisi_hdc") if module == huawei_install.MODULE else ()


VENDOR = Huawei()


def _package(name: str, version: str, file: str) -> Package:
    """Return a package that has its installer in it, as the vendor's do."""
    postinst = (
        '[ "$1" = configure ] || exit 0\n'
        f"/usr/bin/python3 {TOOL} run-file huawei '{file}' --package --quiet || [ $? = 2 ]\n"
    )
    return Package(name, version, postinst=postinst)


def _cann(options: Options, chip: str) -> list[Package]:
    version = options.setting("cann")
    names = {"toolkit": "ascend-cann-toolkit", "ops": f"ascend-cann-{chip}-ops", "nnal": "ascend-cann-nnal"}
    return [
        _package(name, version, huawei_install.file_name(part, chip, version, "x86-64")) for part, name in names.items()
    ]
