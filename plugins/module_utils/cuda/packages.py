# SPDX-License-Identifier: GPL-3.0-or-later
"""The names and sources of the packages of NVIDIA's driver, for each operating system, source and branch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..common.versions import newest, upstream_version
from ..vendor_stack.model import (
    APT,
    DISTRO,
    DNF,
    MIRROR,
    NONE,
    RHEL_LIKE,
    VENDOR,
    Command,
    Host,
    Key,
    Package,
    Repository,
    StackError,
)
from ..vendor_stack.packages import debian_archive, debian_security, epel, exact
from .chips import OPEN

# The vendor's repository names of the supported distributions. UNCONFIRMED: ubuntu2204 and rhel9 were seen in use,
# not requested today.
TAGS = {
    ("debian", "12"): "debian12",
    ("debian", "13"): "debian13",
    ("ubuntu", "22.04"): "ubuntu2204",
    ("ubuntu", "24.04"): "ubuntu2404",
    ("ubuntu", "26.04"): "ubuntu2604",
    ("rhel", "9"): "rhel9",
    ("rhel", "10"): "rhel10",
}
VENDOR_URL = "https://developer.download.nvidia.com/compute/cuda/repos"
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
# The file with the repository's key is named after the end of the key's fingerprint.
KEYS = {
    "debian12": "3bf863cc",  # UNCONFIRMED today
    "debian13": "8793F200",
    "ubuntu2204": "3bf863cc",  # UNCONFIRMED today
    "ubuntu2404": "3bf863cc",  # UNCONFIRMED today
    "ubuntu2604": "3bf863cc",  # UNCONFIRMED today
    "rhel9": "D42D0685",
    "rhel10": "CDF6BA43",
}
# The driver branch in each release of Debian itself.
DEBIAN_BRANCHES = {"12": 535, "13": 550}

# From this branch on the vendor has packages that pin a branch or a version.
FIRST_PINNED = 580
# From this branch on Ubuntu's package names in the vendor's repository have no branch.
FIRST_PLAIN = 590
# From this branch on the fabric manager's package names have no branch either.
FIRST_PLAIN_FABRIC = 580

_PINNING = "nvidia-driver-pinning-"
_DRIVER = re.compile(
    r"(nvidia-|libnvidia-|libnvsdm|cuda-drivers|kmod-nvidia|xserver-xorg-video-nvidia|firmware-nvidia|libcuda1$"
    r"|linux-(modules|objects|signatures)-nvidia-)"
)
_OTHER = re.compile(r"nvidia-(container|docker|driver-pinning|cdi)|libnvidia-container|nvidia-smi-exporter")
_KERNEL = re.compile(r"(nvidia-dkms(-\d+)?(-server)?|nvidia-(open-)?kernel(-open)?-dkms|kmod-nvidia-.+-dkms)(-open)?$")
# Ubuntu's modules, built and signed for one kernel each, and the packages that follow its newest kernel.
_PREBUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
_TOOLS = re.compile(r"nvidia-(smi|driver-cuda|utils(-\d+(-server)?)?)$")
_FABRIC = re.compile(r"nvidia-fabric-?manager(-\d+)?$")


@dataclass(frozen=True)
class Driver:
    """The requested driver: its branch, the exact version where known, and the modules' flavour.

    ``pin`` is what upgrades must keep: the branch, or the version where the site requests one.
    """

    branch: int
    version: str | None
    flavour: str
    pin: str

    def version_for(self, manager: str) -> str:
        """Return the version of its packages in the package manager's form."""
        return exact(self.version, manager) if self.version else f"{self.branch}.*"


def platform(host: Host) -> str:
    """Return the vendor's repository name of the operating system. Raises StackError where it is not supported."""
    like = host.distribution in RHEL_LIKE
    tag = TAGS.get(("rhel", host.major) if like else (host.distribution, host.version))
    if tag is None:
        raise StackError(
            f"{host.title} is not supported for NVIDIA's driver; supported are Debian 12 and 13, Ubuntu 22.04, 24.04 "
            "and 26.04, RHEL, AlmaLinux, Rocky Linux, CentOS Stream and Oracle Linux 9 and 10"
        )
    if host.architecture not in ARCHITECTURES:
        raise StackError(f"NVIDIA has no driver for {host.architecture}; expected {' or '.join(ARCHITECTURES)}")
    return tag


def repositories(host: Host, source: str, mirror: str, epel_mirror: str) -> tuple[Repository, ...]:
    """Return the repositories that the driver needs; the mirrors replace their public addresses."""
    tag = platform(host)
    if source == DISTRO:
        return () if host.distribution == "ubuntu" else _debian(host, mirror)
    base = f"{mirror.rstrip('/') or VENDOR_URL}/{tag}/{ARCHITECTURES[host.architecture]}/"
    key = KEYS[tag]
    if host.manager == APT:
        path = f"/etc/apt/keyrings/cuda-{key}.asc"
        return (Repository(f"cuda-{tag}", base, Key(f"{base}{key}.pub", path, key), suites=("/",)),)
    path = f"/etc/pki/rpm-gpg/RPM-GPG-KEY-cuda-{key}"
    cuda = Repository(f"cuda-{tag}", base, Key(f"{base}{key}.pub", path, key))
    return (cuda,) if "dkms" in host.packages else (epel(host, epel_mirror), cuda)


def _debian(host: Host, mirror: str) -> tuple[Repository, ...]:
    if host.distribution != "debian":
        raise StackError(f"{host.title} has no NVIDIA driver of its own; set cuda_source to vendor or mirror")
    components = ("contrib", "non-free", "non-free-firmware")
    # Security fixes of the driver are published only in the second repository.
    return (
        debian_archive(host, mirror, "debian-non-free", components),
        debian_security(host, mirror, "debian-non-free-security", components),
    )


def preparation(host: Host, source: str, driver: Driver) -> tuple[Command, ...]:
    """Return the commands that pin the branch before the driver is installed: on RHEL 9 a module stream, on 10 a lock.

    UNCONFIRMED: that RHEL 10 has no streams.
    """
    if host.manager == APT or source == NONE:
        return ()
    lock = Command(("dnf", "-y", "install", "python3-dnf-plugin-versionlock"), "packages are held by it")
    if host.major == "9":
        stream = f"nvidia-driver:{driver.branch}-{'open' if driver.flavour == OPEN else 'dkms'}"
        return (
            lock,
            Command(("dnf", "-y", "module", "reset", "nvidia-driver"), "another stream may be on"),
            Command(("dnf", "-y", "module", "enable", stream), f"keeps the driver on branch {driver.branch}"),
        )
    return lock, Command(("dnf", "-y", "versionlock", "add", f"*nvidia*{driver.pin}*"), "pins it")


def kernel_package(host: Host, source: str, driver: Driver) -> str:
    """Return the name of the package with the kernel module."""
    is_open = driver.flavour == OPEN
    if host.manager == DNF:
        return "kmod-nvidia-open-dkms" if is_open else "kmod-nvidia-latest-dkms"
    if host.distribution == "ubuntu":
        server = "-server" if source == DISTRO else ""
        suffix = "" if driver.branch >= FIRST_PLAIN and source != DISTRO else f"-{driver.branch}"
        return f"nvidia-dkms{suffix}{server}{'-open' if is_open else ''}"
    if source == DISTRO:
        return "nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms"
    return "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms"


def driver_packages(host: Host, source: str, driver: Driver) -> list[Package]:
    """Return the driver's packages, the one that pins the branch first."""
    version = driver.version_for(host.manager)
    kernel = Package(kernel_package(host, source, driver), version)
    if source == DISTRO:
        return [kernel, *_distro_packages(host, driver, version)]
    if host.manager == DNF and host.major == "9":
        names = ("nvidia-driver-cuda", "nvidia-driver-libs", "libnvidia-ml", "nvidia-persistenced")
        return [kernel, *(Package(name, version) for name in names)]
    # UNCONFIRMED: cuda-drivers on RHEL 10, nvidia-open with a branch in its name below 580.
    whole = "nvidia-open" if driver.flavour == OPEN else "cuda-drivers"
    if host.manager == DNF:
        return [kernel, Package(whole, version)]
    if driver.branch < FIRST_PINNED:
        return [kernel, Package(f"{whole}-{driver.branch}", version)]
    # On Ubuntu a dependency of these packages installs the persistence daemon.
    daemon = [Package("nvidia-persistenced", version)] if host.distribution == "debian" else []  # UNCONFIRMED
    return [Package(f"{_PINNING}{driver.pin}", ahead=True), kernel, Package(whole, version), *daemon]


def pinning_packages(host: Host, source: str, version: str, asked: str) -> list[Package]:
    """Return the package that pins a driver that stays, where the installed one pins another.

    A failed upgrade leaves that state. ``asked`` is the branch or version that the site requests.
    """
    pins = [name[len(_PINNING) :] for name in host.packages if is_pinning(name)]
    if source not in (VENDOR, MIRROR) or all(f"{version}.".startswith(f"{pin}.") for pin in pins):
        return []
    pin = asked if asked and f"{version}.".startswith(f"{asked}.") else version.split(".")[0]
    return [Package(f"{_PINNING}{pin}", ahead=True)]


def _distro_packages(host: Host, driver: Driver, version: str) -> list[Package]:
    if host.distribution == "ubuntu":
        flavour = "-open" if driver.flavour == OPEN else ""
        names = [f"nvidia-headless-{driver.branch}-server{flavour}", f"nvidia-utils-{driver.branch}-server"]
        return [Package(name, version) for name in names]
    # UNCONFIRMED: libcuda1, and that the firmware's version is always the driver's.
    names = ["nvidia-smi", "libcuda1", "firmware-nvidia-gsp"]
    return [*(Package(name, version) for name in names), Package("nvidia-persistenced")]


def fabric_packages(host: Host, source: str, version: str, nvlink5: bool) -> list[Package]:
    """Return the fabric manager's packages at the driver's version (exact, or ``580.*`` where only that is known)."""
    if host.distribution == "debian" and source == DISTRO:
        # UNCONFIRMED: its archive showed none.
        raise StackError(
            f"this machine's NVSwitches need the fabric manager, which {host.title} does not have of its own; "
            "set cuda_source to vendor or mirror"
        )
    branch = upstream_version(version).split(".")[0]
    plain = int(branch) >= FIRST_PLAIN_FABRIC and source != DISTRO
    suffix = "" if plain else f"-{branch}"
    at = version if version.endswith("*") else exact(version, host.manager)
    if host.manager == DNF:
        names = ["nvidia-fabricmanager" if plain else "nvidia-fabric-manager"]
    else:
        names = [f"nvidia-fabricmanager{suffix}"]  # UNCONFIRMED below 580 and in Ubuntu's archive
    names.append(f"libnvidia-nscq{suffix}")
    if nvlink5 and not (host.manager == APT and host.architecture == "aarch64"):
        names.append(f"libnvsdm{suffix}")
    more = [Package("nvlsm"), Package("infiniband-diags")] if nvlink5 else []
    return [*(Package(name, at) for name in names), *more]


def is_driver(name: str) -> bool:
    """Return whether a package belongs to the driver or the fabric manager, which are held together."""
    return bool(_DRIVER.match(name)) and not _OTHER.match(name)


def is_fabric(name: str) -> bool:
    """Return whether a package is the fabric manager."""
    return bool(_FABRIC.match(name))


def is_pinning(name: str) -> bool:
    """Return whether a package pins a branch or a version of the driver."""
    return name.startswith(_PINNING)


def is_kernel(name: str) -> bool:
    """Return whether a package contains the driver's kernel module."""
    return bool(_KERNEL.match(name))


def prebuilt_packages(host: Host) -> list[str]:
    """Return the installed packages with modules that Ubuntu built; their versions are the kernel's."""
    return sorted(name for name in host.packages if _PREBUILT.match(name))


def signed_package(host: Host, driver: Driver) -> str:
    """Return Ubuntu's package of modules for its usual kernel that Canonical signed, empty on other systems."""
    flavour = "-open" if driver.flavour == OPEN else ""
    return f"linux-modules-nvidia-{driver.branch}-server{flavour}-generic" if host.distribution == "ubuntu" else ""


def kernel_packages(host: Host) -> dict[str, str]:
    """Return the installed packages with the driver's kernel module, with their versions."""
    return {name: version for name, version in host.packages.items() if is_kernel(name)}


def on_disk(host: Host) -> str | None:
    """Return the driver's version from its installed packages, None where no package installed it.

    The packages of modules built elsewhere have the kernel's version; then the tools' packages have the driver's.
    """
    tools = [version for name, version in host.packages.items() if _TOOLS.match(name)]
    versions = list(map(upstream_version, list(kernel_packages(host).values()) or tools))
    return newest(versions) if versions else None
