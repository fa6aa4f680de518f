# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for ROCm in user space: whether it is retained, and what is installed."""

from dataclasses import dataclass
from typing import Sequence

from ...module_utils.rocm.chips import RocmHostState
from ...module_utils.rocm.packages import (
    NO_USERSPACE,
    PREFERENCES,
    is_userspace,
    own_userspace_packages,
    userspace_packages,
    userspace_repository,
)
from ...module_utils.rocm.releases import CLASSIC, Release
from ...module_utils.vendor_stack.chips import Chip
from ...module_utils.vendor_stack.model import (
    APT,
    DISTRO,
    INSTALL,
    NONE,
    ConfigFile,
    Host,
    Package,
    Repository,
    StackError,
)


@dataclass(frozen=True)
class Userspace:
    """The packages of ROCm in user space to install, and the steps before them."""

    packages: tuple[Package, ...] = ()
    repositories: tuple[Repository, ...] = ()
    files: tuple[ConfigFile, ...] = ()
    remove_first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class UserspaceRequest:
    """The site's request for user space: how much, of which release (None if none is named), from which source."""

    extent: str
    rocm: Release | None
    source: str
    policy: str
    mirror: str


def plan_userspace(host: Host, shown: RocmHostState, chips: Sequence[Chip], request: UserspaceRequest) -> Userspace:
    """Return the missing steps. Raises StackError for a request that cannot be met.

    An installed user space of another release, or from no package, is retained unless the policy is install, because
    programs on the host may need it.
    """
    if request.extent == NO_USERSPACE:
        return Userspace()
    if request.source == DISTRO:
        return Userspace(packages=tuple(own_userspace_packages(host, request.extent)))
    packaged = any(is_userspace(name) for name in host.packages)
    release = request.rocm
    of_another = bool(shown.rocm) and release is not None and shown.rocm != release.rocm
    if shown.rocm and request.policy != INSTALL and (of_another or not packaged):
        notes = (
            (f"ROCm {shown.rocm} is retained in /opt/rocm, wanted is {release.rocm}",) if of_another and release else ()
        )
        return Userspace(notes=notes)
    if release is None:
        raise StackError("rocm_userspace needs a release of ROCm, and the vLLM release names none; set rocm_version")
    packages = userspace_packages(release, request.extent, [chip.generation for chip in chips if not chip.unsupported])
    if request.source == NONE:
        missing = [package.name for package in packages if package.name not in host.packages]
        if missing:
            raise StackError(
                f"rocm_userspace is {request.extent}, which needs {', '.join(missing)}, and rocm_source is none; "
                "install it, set rocm_source, or set rocm_userspace to none"
            )
    is_classic = release.layout == CLASSIC
    older = not is_classic and "rocm-core" in host.packages
    return Userspace(
        packages=tuple(packages),
        repositories=(userspace_repository(host, release, request.mirror),),
        files=(PREFERENCES,) if is_classic and host.manager == APT else (),
        remove_first=("rocm-core",) if older else (),
        notes=(f"ROCm {host.packages['rocm-core']} is removed first: it and {release.rocm} exclude each other",)
        if older
        else (),
    )
