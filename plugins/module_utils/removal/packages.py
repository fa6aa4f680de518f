# SPDX-License-Identifier: GPL-3.0-or-later
"""Which installed packages belong to a driver or a container engine, and the commands that remove them.

They stay unless the user requests their removal with another switch: other programs may need them.
"""

from __future__ import annotations

from typing import Iterable

from ..cann import packages as cann
from ..container_runtime.names import DOCKER_VENDOR
from ..cuda import packages as cuda
from ..rocm import packages as rocm
from .model import CONTAINER_ENGINE, DRIVER

APT, DNF = "apt", "dnf"
ENGINE_PACKAGES = frozenset(
    (
        *DOCKER_VENDOR, "docker-ce-rootless-extras", "docker.io", "docker-cli", "podman",
        "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
        "libnvidia-container1", "amd-container-toolkit",
    )
)  # fmt: skip


def packages_of(switch: str, installed: Iterable[str]) -> tuple[str, ...]:
    """Return the installed packages that a switch removes, sorted."""
    belongs = {DRIVER: is_driver, CONTAINER_ENGINE: ENGINE_PACKAGES.__contains__}[switch]
    return tuple(sorted(name for name in set(installed) if belongs(name)))


def is_driver(name: str) -> bool:
    """Return whether a package belongs to the driver of one of the vendors."""
    return (
        cuda.is_driver(name)
        or cuda.is_pinning(name)
        or rocm.is_driver(name)
        or rocm.is_userspace(name)
        or cann.is_ours(name)
    )


def removal_command(manager: str, names: Iterable[str], dry: bool = False) -> list[str]:
    """Return the command that removes packages, held ones too.

    It fails where another package needs one of them; apt and dnf would remove that one as well. ``dry`` only tries.
    """
    if manager == APT:
        return ["dpkg", "--force-hold", *(["--no-act"] if dry else []), "--purge", *names]
    return ["rpm", *(["--test"] if dry else []), "--erase", *names]


def afterwards(manager: str, paths: Iterable[str]) -> list[list[str]]:
    """Return the commands that let the system forget removed files: it has copies of some for its start."""
    commands = []
    gone = list(paths)
    if any(path.startswith(("/etc/modprobe.d/", "/etc/modules-load.d/")) for path in gone):
        rebuild = (
            ["update-initramfs", "-u", "-k", "all"] if manager == APT else ["dracut", "--force", "--regenerate-all"]
        )
        commands.append(rebuild)
    if any(path.startswith("/etc/default/grub.d/") for path in gone) and manager == APT:
        commands.append(["update-grub"])
    return commands
