# SPDX-License-Identifier: GPL-3.0-or-later
"""The names and sources of Huawei's packages, for each operating system."""

from __future__ import annotations

import re
from typing import Sequence

from ..common.versions import upstream_version
from ..vendor_stack.model import APT, DNF, Host, Key, Package, Repository, StackError
from ..vendor_stack.packages import header_packages
from .chips import CHIPS, AscendChip
from .installers import CANN, DRIVER, FIRMWARE, NNAL, OPS, TOOLKIT
from .versions import is_same

# UNCONFIRMED: Debian 13; the vendor has one repository for all apt systems.
APT_SYSTEMS = {("debian", "12"), ("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04")}
# By the prefix of the version: openEuler 22.03 and its service packs, Kylin V10 SP3.
DNF_SYSTEMS = (("openeuler", "22.03"), ("openeuler", "24.03"), ("kylin", "V10"))
ARCHITECTURES = ("x86_64", "aarch64")

APT_URL = "https://ascend.devcloud.huaweicloud.com/cann/debian"
# The vendor's key is available only in this package, as the file that signs the repository.
APT_KEYRING = "cann-keyring_1.0.0_all.deb"
APT_KEY = "/usr/share/keyrings/cann-archive-keyring.gpg"
# The location of a key that the site provides itself.
APT_SITE_KEY = "/etc/apt/keyrings/cann-site.asc"
DNF_URL = "https://repo.oepkgs.net/ascend/cann"
DNF_KEY = "RPM-GPG-KEY-CANN"
# Suites of the apt repository: driver and firmware, and CANN itself.
HDK_SUITE = "hdk"
CANN_SUITE = "cann"

DKMS = "davinci_ascend"
_NAMES = {name for chip in CHIPS.values() for name in (chip.apt, chip.dnf, chip.firmware_apt, chip.firmware_dnf)}
_CANN = re.compile(r"ascend-cann-", re.IGNORECASE)


def platform(host: Host) -> None:
    """Raise StackError where Huawei has no packages for the operating system or the architecture."""
    distribution = host.distribution.lower()
    known = (distribution, host.version) in APT_SYSTEMS or any(
        distribution == name and host.version.startswith(version) for name, version in DNF_SYSTEMS
    )
    if not known:
        raise StackError(
            f"{host.title} is not supported for Huawei's driver; supported are Debian 12 and 13, Ubuntu 22.04 and "
            "24.04, openEuler 22.03 and 24.03, Kylin V10"
        )
    if host.architecture not in ARCHITECTURES:
        raise StackError(f"Huawei has no driver for {host.architecture}; expected {' or '.join(ARCHITECTURES)}")


def repository(host: Host, mirror: str, key: str, with_cann: bool) -> Repository:
    """Return the vendor's repository, or a ``mirror`` with the same layout; ``key`` is the site's own."""
    if host.manager == DNF:
        base = mirror.rstrip("/") or DNF_URL
        signed = Key(key or f"{base}/{DNF_KEY}", f"/etc/pki/rpm-gpg/{DNF_KEY}", "")
        # UNCONFIRMED: that the index is beside the packages of each architecture.
        return Repository("ascend-cann", f"{base}/{host.architecture}/", signed)
    base = mirror.rstrip("/") or APT_URL
    keyring = "" if "cann-keyring" in host.packages else f"{base}/{APT_KEYRING}"
    signed = Key(key, APT_SITE_KEY, "") if key else Key(keyring, APT_KEY, "")
    suites = (HDK_SUITE, CANN_SUITE) if with_cann else (HDK_SUITE,)
    return Repository("ascend-cann", base, signed, suites, ("main",))


def build_packages(host: Host) -> list[Package]:
    """Return the packages that build the driver's modules, and those that its installer needs."""
    # RPM keeps only one version of these.
    more = [f"kernel-headers-{host.kernel}"] if host.manager == DNF else []
    return [*(Package(name) for name in ("make", "gcc", "net-tools", *more)), *header_packages(host)]


def package(host: Host, chip: AscendChip, component: str, version: str) -> Package:
    """Return the package of a component at one version; the two package managers use different names."""
    if host.manager == APT:
        names = {DRIVER: chip.apt, FIRMWARE: chip.firmware_apt}
        # UNCONFIRMED: the case of A3, from one site's list of the repository.
        names.update({TOOLKIT: "ascend-cann-toolkit", OPS: f"ascend-cann-{chip.ops}-ops", NNAL: "ascend-cann-nnal"})
        return Package(names[component], version.lower() if component not in CANN else version)
    names = {DRIVER: chip.dnf, FIRMWARE: chip.firmware_dnf}
    names.update({TOOLKIT: "Ascend-cann-toolkit", OPS: f"Ascend-cann-{chip.ops}-ops", NNAL: "Ascend-cann-nnal"})
    # RPM versions have no hyphen: 9.2.0_beta.2.
    written = version.replace("-", "_")
    return Package(names[component], written.lower() if component not in CANN else written)


def resolved(wanted: Package, offered: Sequence[str]) -> Package:
    """Return a package at the version in the repository's spelling. Raises StackError where that version is missing."""
    version = wanted.version or ""
    fit = [text for text in offered if is_same(text, version) or is_same(upstream_version(text), version)]
    if not fit:
        found = ", ".join(sorted(set(offered))) or "none"
        raise StackError(
            f"the repository has no {wanted.name} {version}; it has {found}; correct the version, or name .run files"
        )
    return Package(wanted.name, fit[0])


def is_driver(name: str) -> bool:
    """Return whether a package is a driver or its firmware."""
    return name in _NAMES


def is_ours(name: str) -> bool:
    """Return whether a package is one of Huawei's that are held."""
    return is_driver(name) or bool(_CANN.match(name))


def hdk_packages(host: Host) -> dict[str, str]:
    """Return the installed packages of driver and firmware, with their versions."""
    return {name: version for name, version in host.packages.items() if is_driver(name)}
