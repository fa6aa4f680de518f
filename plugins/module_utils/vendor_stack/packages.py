# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and repositories that all vendors' drivers need: headers, DKMS, the distributions' own archives."""

from __future__ import annotations

import fnmatch
import re

from ..common.versions import upstream_version
from .model import APT, DNF, OPENEULER_LIKE, Command, Host, Key, Package, Repository, StackError

# The source of DKMS for RHEL and its clones. UNCONFIRMED: paths are from general knowledge.
EPEL_URL = "https://dl.fedoraproject.org/pub/epel"
DEBIAN_URL = "http://deb.debian.org/debian"
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

_IMAGE = re.compile(r"linux-image-(?!unsigned-|extra-)([a-z][\w.-]*)\Z")


def exact(version: str, manager: str) -> str:
    """Return the pattern of one upstream version, with any revision of its packages."""
    return version if manager == DNF else f"{version}-*"


def debian_archive(host: Host, mirror: str, name: str, components: tuple[str, ...]) -> Repository:
    """Return further components of Debian's own archive; ``mirror`` replaces its address."""
    suites = (host.codename, f"{host.codename}-updates")
    key = Key("", DEBIAN_KEYRING, "")
    return Repository(name, mirror or DEBIAN_URL, key, suites, components)


def debian_security(host: Host, mirror: str, name: str, components: tuple[str, ...]) -> Repository:
    """Return the same for its security archive; a mirror has it at the same address with -security at the end."""
    url = f"{(mirror or DEBIAN_URL).rstrip('/')}-security"
    return Repository(name, url, Key("", DEBIAN_KEYRING, ""), (f"{host.codename}-security",), components)


def epel(host: Host, mirror: str) -> Repository:
    """Return the repository with DKMS for RHEL and its clones; ``mirror`` replaces its address."""
    base = mirror.rstrip("/") or EPEL_URL
    name = f"RPM-GPG-KEY-EPEL-{host.major}"
    key = Key(f"{base}/{name}", f"/etc/pki/rpm-gpg/{name}", "")
    return Repository("epel", f"{base}/{host.major}/Everything/{host.architecture}/", key)


def header_packages(host: Host) -> list[Package]:
    """Return the headers that DKMS needs: of the running kernel, of the next one, and those that follow upgrades."""
    if host.manager == DNF:
        names = [f"kernel-{'uek-' if _is_uek(kernel) else ''}devel-{kernel}" for kernel in host.kernels]
        # The package that follows upgrades; Oracle's own kernels and openEuler have none.
        if host.distribution not in OPENEULER_LIKE and not _is_uek(host.next_kernel):
            names.append(f"kernel-devel-matched-{host.next_kernel}")
        return [Package(name) for name in [*names, "dkms"]]
    found = (_IMAGE.match(name) for name in sorted(host.packages))
    names = [f"linux-headers-{kernel}" for kernel in host.kernels]
    names += [f"linux-headers-{match.group(1)}" for match in found if match]
    return [Package(name) for name in [*names, "dkms"]]


def _is_uek(kernel: str) -> bool:
    """Return whether a kernel is Oracle's own, the Unbreakable Enterprise Kernel."""
    return "uek" in kernel


def is_installed(host: Host, package: Package) -> bool:
    """Return whether a package is installed in the requested version."""
    found = host.packages.get(package.name)
    if found is None or package.version is None:
        return found is not None
    bare = found.split(":", 1)[-1]
    return any(fnmatch.fnmatchcase(text, package.version) for text in (bare, upstream_version(bare)))


def check_secure_boot(host: Host, signed: str = "") -> None:
    """Raise StackError if the kernel would refuse the modules that DKMS builds.

    ``signed`` is the package of a distribution whose modules it accepts, empty for none.
    """
    if host.secure_boot and not host.signing_key_enrolled:
        key = "/var/lib/shim-signed/mok/MOK.der" if host.distribution == "ubuntu" else "/var/lib/dkms/mok.pub"
        raise StackError(
            f"Secure Boot is on and the key that DKMS signs modules with ({key}) is not enrolled, so that the kernel "
            f"would refuse the driver; run 'mokutil --import {key}', reboot and confirm at the console, "
            + (f"install the modules that {host.title} signed ({signed}), which are retained, " if signed else "")
            + "or switch Secure Boot off in the firmware"
        )


def rebuild_initramfs(host: Host, why: str) -> Command:
    """Return the command that rebuilds the initramfs of all kernels."""
    argv = ("update-initramfs", "-u", "-k", "all") if host.manager == APT else ("dracut", "--force", "--regenerate-all")
    return Command(argv, why)


def build_missing(host: Host, dkms: str, package: str) -> list[Command]:
    """Return the commands that build the driver's module for kernels without one.

    ``dkms`` is the prefix of the names of its DKMS modules. After a failed upgrade DKMS may not know the module, and
    then does nothing for it: a reinstallation of ``package``, which has its source, registers it again.
    """
    ours = [build for build in host.dkms if build.module.startswith(dkms)]
    built = {build.kernel for build in ours if build.state == "installed"}
    lacking = [kernel for kernel in host.kernels if kernel not in built]
    if lacking and not ours:
        argv = ("dpkg-reconfigure", "--frontend=noninteractive", package)
        again = argv if host.manager == APT else ("dnf", "-y", "reinstall", package)
        return [Command(again, "DKMS does not know the driver's module")]
    return [
        Command(("dkms", "autoinstall", "-k", kernel), f"kernel {kernel} has no module of the driver")
        for kernel in lacking
    ]
