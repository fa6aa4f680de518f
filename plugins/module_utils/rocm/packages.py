# SPDX-License-Identifier: GPL-3.0-or-later
"""The names and sources of the packages of AMD's driver and ROCm, for each system, source and release."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ..common.versions import newest, upstream_version
from ..vendor_stack.model import APT, DNF, ConfigFile, Host, Key, Package, Repository, StackError
from ..vendor_stack.packages import header_packages
from .releases import CLASSIC, CORE, Release, el_directory, system_of

DRIVER = "amdgpu-dkms"
FIRMWARE = "amdgpu-dkms-firmware"

# A mirror replaces all three hosts, because no path exists on two of them.
RADEON = "https://repo.radeon.com"
THEROCK_HOST = "https://repo.amd.com"
CORE_HOST = "https://stable.repo.amd.com"
# The key that signs the driver and ROCm up to 7.2. UNCONFIRMED today.
RADEON_KEY_ID = "9386B48A1A693C5C"

RUNTIME = "runtime"
FULL = "full"
NO_USERSPACE = "none"
_CLASSIC_PACKAGES = {RUNTIME: ("rocm-hip-runtime", "rocminfo", "amd-smi-lib", "rocm-smi-lib"), FULL: ("rocm",)}
# By distribution and major version. Debian's and Ubuntu's own versions are older than those in vLLM's images.
_DISTRO_PACKAGES = {
    ("debian", "12"): {RUNTIME: ("rocminfo", "rocm-smi"), FULL: ("rocminfo", "rocm-smi", "hipcc")},
    ("debian", "13"): {
        RUNTIME: ("rocminfo", "rocm-smi", "amd-smi"),
        FULL: ("rocminfo", "rocm-smi", "amd-smi", "hipcc"),
    },
}
# The distribution's packages of the same names (rocminfo) must not replace these.
PREFERENCES = ConfigFile(
    "/etc/apt/preferences.d/baremetal-rocm", "Package: *\nPin: release o=repo.radeon.com\nPin-Priority: 600\n"
)

# AMD's packages that add its repositories to apt and dnf with files of their own.
INSTALLERS = ("amdgpu-install", "amdrocm-repo")
INSTALLERS_FILES = ("amdgpu", "amdrocm", "rocm")

RELEVANT = re.compile(
    r"(amdgpu|amdrocm|rocm|amd-smi|rocminfo|hipcc$|firmware-amd-graphics|linux-firmware|linux-modules-extra-)"
)
_USERSPACE = re.compile(r"(amdrocm|rocm-|rocm$|rocminfo|amd-smi)")
_CODE = re.compile(r"\.([0-9]{5,8})\Z")


def is_driver(name: str) -> bool:
    """Return whether a package belongs to the driver, so that it is held."""
    return name in (DRIVER, FIRMWARE)


def is_userspace(name: str) -> bool:
    """Return whether a package belongs to ROCm in user space."""
    return bool(_USERSPACE.match(name))


def on_disk(host: Host) -> str | None:
    """Return the driver's version from its installed package, None where no package installed it.

    On Debian and Ubuntu it ends in the code of the driver's release (6.16.13.30300300, see Release.code).
    """
    version = host.packages.get(DRIVER)
    return upstream_version(version) if version else None


def is_of(version: str, release: Release) -> bool:
    """Return whether a driver's version, of a package or a module, belongs to a release."""
    code = _CODE.search(version)
    if code:
        return code.group(1) == release.code
    return bool(release.module) and f"{version}.".startswith(f"{release.module}.")


def driver_packages(host: Host, release: Release, offered: Mapping[str, Sequence[str]] | None) -> list[Package]:
    """Return the driver's packages. ``offered`` are the versions in the repositories by package, None if unknown.

    Firmware and module have separate version numbers, and an older firmware package may have the higher one. So on
    Debian and Ubuntu both are selected by the code of the release. Raises StackError where the repositories have only
    other releases.
    """
    packages = []
    for name in (DRIVER, FIRMWARE):
        found = list((offered or {}).get(name, ()))
        any_fits = host.manager == DNF and not release.module
        fit = [version for version in found if any_fits or is_of(upstream_version(version), release)]
        if offered is not None and name == DRIVER and not fit:
            raise StackError(
                f"the repository has no {DRIVER} of driver {release.driver} (ROCm {release.rocm}); it has "
                f"{', '.join(sorted(set(map(upstream_version, found)))) or 'none'}; correct rocm_version or rocm_mirror"
            )
        # apt-get itself accepts no patterns: once the repositories are set up, versions are exact.
        version: str | None = newest(fit) if fit else f"*.{release.code}-*"
        if host.manager == DNF:
            # UNCONFIRMED: the version numbers of the firmware's package there.
            wild = f"{release.module}*" if release.module and name == DRIVER else None
            version = upstream_version(newest(fit)) if fit else wild
        packages.append(Package(name, version))
    return packages


def kernel_extras(host: Host) -> list[Package]:
    """Return the packages that DKMS needs to build the module, and the kernel packages that the module itself needs."""
    packages = header_packages(host)
    if host.manager == DNF:
        return [*packages, Package(f"kernel-headers-{host.next_kernel}")]
    if host.distribution == "ubuntu":
        # UNCONFIRMED: that cloud kernels and those of 26.04 have one.
        packages += [Package(f"linux-modules-extra-{kernel}") for kernel in host.kernels]
    return packages


def own_packages(host: Host) -> list[Package]:
    """Return the distribution's packages for the kernel's own driver: its firmware, and on Ubuntu the module."""
    if host.distribution == "debian":
        return [Package("firmware-amd-graphics")]
    # UNCONFIRMED on RHEL and its clones.
    modules = [Package(f"linux-modules-extra-{kernel}") for kernel in host.kernels]
    return [*(modules if host.distribution == "ubuntu" else ()), Package("linux-firmware")]


def userspace_packages(release: Release, userspace: str, generations: Sequence[str]) -> list[Package]:
    """Return AMD's user space packages: ``runtime`` to inspect the chips and run programs, ``full`` to build programs.

    UNCONFIRMED: names of 7.13, and of 7.14's SDK by chip.
    """
    if userspace == NO_USERSPACE:
        return []
    if release.layout == CLASSIC:
        return [Package(name) for name in _CLASSIC_PACKAGES[userspace]]
    base = "amdrocm" if userspace == RUNTIME else "amdrocm-core-sdk"
    return [Package(f"{base}{release.short}-{generation}") for generation in sorted(set(generations))]


def own_userspace_packages(host: Host, userspace: str) -> list[Package]:
    """Return the distribution's own user space packages. Raises StackError where it has none."""
    if userspace == NO_USERSPACE:
        return []
    names = _DISTRO_PACKAGES.get((host.distribution, host.major))
    if names is None:
        raise StackError(
            f"{host.title} has no ROCm of its own that is known here; set rocm_userspace to none, or rocm_source to "
            "vendor"
        )
    return [Package(name) for name in names[userspace]]


def driver_repository(host: Host, release: Release, mirror: str) -> Repository:
    """Return the repository of the driver, which has only this release.

    The repository of the previous release stays configured, because a failed upgrade goes back to its packages.
    """
    base = mirror.rstrip("/") or RADEON
    name, system = f"baremetal-amdgpu-{release.driver}", system_of(host, release)
    if host.manager == APT:
        url = f"{base}/amdgpu/{release.driver}/ubuntu"
        key = _radeon_key(base, "/etc/apt/keyrings/baremetal-radeon.asc")
        return Repository(name, url, key, (system.codename,), ("main",))
    url = f"{base}/amdgpu/{release.driver}/el/{el_directory(host, release)}/main/x86_64/"
    return Repository(name, url, _radeon_key(base, "/etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-radeon"))


def userspace_repository(host: Host, release: Release, mirror: str) -> Repository:
    """Return the repository of ROCm in user space, in the layout of its release."""
    name, tag = "baremetal-rocm", system_of(host, release).tag
    if release.layout == CLASSIC:
        base = mirror.rstrip("/") or RADEON
        # The directories of x.y.0 releases have two numbers.
        version = release.short if release.rocm.endswith(".0") else release.rocm
        if host.manager == APT:
            key = _radeon_key(base, "/etc/apt/keyrings/baremetal-radeon.asc")
            suites = (system_of(host, release).codename,)
            return Repository(name, f"{base}/rocm/apt/{version}", key, suites, ("main",))
        key = _radeon_key(base, "/etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-radeon")
        return Repository(name, f"{base}/rocm/el{host.major}/{version}/main", key)
    if release.layout == CORE:
        base = mirror.rstrip("/") or CORE_HOST
        path, key_url = "rocm/core/packages", f"{base}/rocm/gpg/packages.gpg"
    else:
        base = mirror.rstrip("/") or THEROCK_HOST
        path = "rocm/packages-multi-arch"
        key_url = f"{base}/{path}/gpg/rocm.gpg"
    if host.manager == APT:
        key = Key(key_url, f"/etc/apt/keyrings/baremetal-amdrocm-{release.layout}.asc", "")
        return Repository(name, f"{base}/{path}/{tag}/", key, ("stable",), ("main",))
    key = Key(key_url, f"/etc/pki/rpm-gpg/RPM-GPG-KEY-baremetal-amdrocm-{release.layout}", "")
    return Repository(name, f"{base}/{path}/{tag}/x86_64/", key)


def _radeon_key(base: str, path: str) -> Key:
    """Return the driver's key. It is ASCII-armoured, which apt recognises by the suffix of the file."""
    return Key(f"{base}/rocm/rocm.gpg.key", path, RADEON_KEY_ID)
