# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings beside the driver: accounts with access to the chips, entries that disable the driver, tuning."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Sequence

from ..vendor_stack.model import APT, Command, ConfigFile, Group, Host, StackError, User
from .chips import GROUPS, RocmHostState

GRUB_FILE = "/etc/default/grub.d/baremetal-rocm.cfg"
NUMA = ConfigFile("/etc/sysctl.d/90-baremetal-rocm.conf", "kernel.numa_balancing = 0\n")
# From AMD's tuning guides. UNCONFIRMED: that amd_iommu=on has an effect on kernels where it is the default.
IOMMU_WORDS = {"AuthenticAMD": ("amd_iommu=on", "iommu=pt"), "GenuineIntel": ("intel_iommu=on", "iommu=pt")}
KEPT_OUT = re.compile(r"\s*(blacklist\s+amdgpu\s*(#.*)?$|install\s+amdgpu\s+(/usr)?(/s?bin/)?(true|false)\b)")
# On the kernel's command line; with nomodeset amdgpu exits as soon as it is loaded.
KEPT_OUT_WORD = re.compile(r"((modprobe\.|module_)blacklist=([^\s]*,)?amdgpu(,|$)|nomodeset$)")


@dataclass(frozen=True)
class Settings:
    """The site's settings besides the driver; ``users`` are users of the host that get access to the chips."""

    blacklist_remove: bool = False
    iommu_pt: bool = False
    numa_balancing_off: bool = False
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Steps:
    """The part of a plan that applies the settings."""

    groups: tuple[Group, ...] = ()
    users: tuple[User, ...] = ()
    files: tuple[ConfigFile, ...] = ()
    finish: tuple[Command, ...] = ()
    reboot: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def steps(host: Host, shown: RocmHostState, settings: Settings) -> Steps:
    """Return the steps for the settings. Raises StackError for conflicts and unavailable settings."""
    parts = [
        _accounts(host, settings.users),
        _blacklists(host, shown, settings.blacklist_remove),
        _iommu(host, shown) if settings.iommu_pt else Steps(),
        _numa(shown) if settings.numa_balancing_off else Steps(),
    ]
    return Steps(
        groups=tuple(group for part in parts for group in part.groups),
        users=tuple(user for part in parts for user in part.users),
        files=tuple(file for part in parts for file in part.files),
        finish=tuple(command for part in parts for command in part.finish),
        reboot=tuple(why for part in parts for why in part.reboot),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _accounts(host: Host, names: Sequence[str]) -> Steps:
    """Return the missing groups, and the users to add to groups."""
    for name in names:
        if name not in host.users:
            raise StackError(f"rocm_users names {name}, and the host has no such user in /etc/passwd; create it first")
    outside = [name for name in names if any(not _is_in(host, name, group) for group in GROUPS)]
    return Steps(
        groups=tuple(Group(name) for name in GROUPS if name not in host.groups),
        users=tuple(User(name, host.users[name], GROUPS) for name in outside),
    )


def _is_in(host: Host, user: str, group: str) -> bool:
    return user in host.groups.get(group, ()) or host.users[user] == group


def _blacklists(host: Host, shown: RocmHostState, may_remove: bool) -> Steps:
    """Return the files that disable amdgpu, without those lines. Raises StackError where they must stay.

    A file of the distribution is not changed: a file with the same name in /etc replaces it.
    """
    if not shown.blacklists:
        return Steps()
    for entry in shown.blacklists:
        if not entry.line:
            raise StackError(
                f"the kernel's command line disables amdgpu ({entry.text}); remove that from /etc/default/grub, run "
                f"'{' '.join(_new_grub(host).argv)}' and reboot"
            )
        if not may_remove:
            raise StackError(
                f"{entry.where} disables amdgpu ({entry.text}), so the driver would not load after a reboot; delete "
                "that line, or set rocm_blacklist_remove to true"
            )
    files, notes = [], []
    for path in dict.fromkeys(entry.path for entry in shown.blacklists):
        lines = shown.blacklisting[path].splitlines()
        gone = [line.strip() for line in lines if KEPT_OUT.match(line)]
        content = "".join(
            f"# taken out by the role rocm: {line}\n" if KEPT_OUT.match(line) else f"{line}\n" for line in lines
        )
        place = os.path.join("/etc/modprobe.d", os.path.basename(path))
        files.append(ConfigFile(place, content, in_initramfs=True))
        notes.append(f"{', '.join(gone)} is removed from {path}" + ("" if place == path else f", by {place}"))
    return Steps(files=tuple(files), notes=tuple(notes))


def _new_grub(host: Host) -> Command:
    argv = ("update-grub",) if host.manager == APT else ("grub2-mkconfig", "-o", "/boot/grub2/grub.cfg")
    return Command(argv, "the kernel's command line has changed")


def _iommu(host: Host, shown: RocmHostState) -> Steps:
    """Return the steps that set the IOMMU to pass-through mode from the next boot on."""
    wanted = IOMMU_WORDS.get(shown.cpu_vendor)
    if wanted is None:
        raise StackError(
            "rocm_iommu_pt is true, and the host's processor is from "
            f"{shown.cpu_vendor or 'an unknown vendor'}; expected AMD or Intel; set it to false"
        )
    lacking = [word for word in wanted if word not in shown.command_line.split()]
    file = ConfigFile(GRUB_FILE, f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(wanted)}"\n')
    if not lacking:
        return Steps(files=(file,) if shown.grub is not None else ())
    if not shown.has_grub:
        raise StackError(
            "rocm_iommu_pt is true, and the host has no GRUB (/etc/default/grub); add "
            f"{' '.join(lacking)} to the kernel's command line in the host's own boot loader, and reboot"
        )
    reboot = (f"the kernel's command line has no {' '.join(lacking)} yet",)
    if host.manager != APT:
        argv = ("grubby", "--update-kernel=ALL", f"--args={' '.join(wanted)}")
        return Steps(finish=(Command(argv, "AMD's tuning guides ask for it"),), reboot=reboot)
    return Steps(files=(file,), finish=(_new_grub(host),), reboot=reboot)


def _numa(shown: RocmHostState) -> Steps:
    if not shown.numa_balancing:
        return Steps(notes=("rocm_numa_balancing_off is true, and this kernel has no NUMA balancing to switch off",))
    command = Command(("sysctl", "-w", "kernel.numa_balancing=0"), "the file takes effect at the next boot")
    return Steps(files=(NUMA,), finish=(command,) if shown.numa_balancing != "0" else ())
