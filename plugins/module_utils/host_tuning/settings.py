# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role host_tuning can set on a host, and what its options request."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ..common.kinds import show_value
from ..common.spelling import nearest

GOVERNOR, PERSISTENCE, NUMA, HUGE_PAGES = "governor", "persistence", "numa_balancing", "transparent_huge_pages"
ACS, POWER_CAP, LIMITS, IOMMU = "acs", "power_cap", "limits", "iommu_pt"
# In the order in which they are read and set. The first six are lost at a boot, and the unit sets them again.
AT_BOOT = (GOVERNOR, NUMA, HUGE_PAGES, ACS, PERSISTENCE, POWER_CAP)
SETTINGS = (*AT_BOOT, LIMITS, IOMMU)

LIMITS_FILE = "/etc/security/limits.d/90-host-tuning.conf"
SYSTEMD_FILE = "/etc/systemd/system.conf.d/90-host-tuning.conf"
GRUB_FILE = "/etc/default/grub.d/90-baremetal-host-tuning.cfg"
# Where RHEL and its relatives keep the arguments of each kernel; the place of the setting in place of a file.
GRUBBY = "grubby"
# Limits that PAM and systemd both know: name in systemd, and whether PAM counts in KiB.
LIMIT_NAMES = {
    "memlock": ("DefaultLimitMEMLOCK", True),
    "nofile": ("DefaultLimitNOFILE", False),
    "nproc": ("DefaultLimitNPROC", False),
    "stack": ("DefaultLimitSTACK", True),
}
UNLIMITED = "unlimited"
# Without these words the kernel translates the addresses of all DMA. On ARM there is one word for every vendor.
IOMMU_WORDS = {
    "AuthenticAMD": ("amd_iommu=on", "iommu=pt"),
    "GenuineIntel": ("intel_iommu=on", "iommu=pt"),
    "aarch64": ("iommu.passthrough=1",),
}


class TuningError(ValueError):
    """A setting cannot be what the options request; the message names option, found and expected."""


class Knob(NamedTuple):
    """One value of a setting on the host: where it is, and what it may be."""

    setting: str
    place: str
    value: str
    # Empty where anything is allowed.
    allowed: tuple[str, ...] = ()
    # The range of a number; 0, 0 where the value is none.
    least: float = 0.0
    most: float = 0.0


def wanted_of(options: Mapping[str, Any], words: tuple[str, ...], grubby: bool) -> dict[str, dict[str, str]]:
    """Return the value of each requested setting by place; the place ``""`` stands for every place.

    ``options`` are those of the module, ``words`` the kernel arguments of pass-through for the host's processor.
    Raises TuningError.
    """
    found: dict[str, dict[str, str]] = {}
    if options["governor"]:
        found[GOVERNOR] = {"": options["governor"]}
    if options["numa_balancing_off"]:
        found[NUMA] = {"": "0"}
    if options["transparent_huge_pages"]:
        found[HUGE_PAGES] = {"": options["transparent_huge_pages"]}
    if options["acs_off"]:
        found[ACS] = {"": "0000"}
    if options["persistence"]:
        found[PERSISTENCE] = {"": "Enabled"}
    if options["power_cap"]:
        found[POWER_CAP] = {"": number(options["power_cap"])}
    if options["limits"]:
        found[LIMITS] = limit_files(options["limits"])
    if options["iommu_pt"]:
        if not words:
            raise TuningError(
                f"host_tuning_iommu_pt: the host's processor is none of {', '.join(IOMMU_WORDS)}; set it to false"
            )
        found[IOMMU] = {GRUBBY: " ".join(words)} if grubby else {GRUB_FILE: grub_text(words)}
    return found


def number(value: float) -> str:
    """Return a number as the readings of the host have it."""
    return f"{float(value):g}"


def limit_files(limits: Mapping[str, Any]) -> dict[str, str]:
    """Return the contents of both files of limits: for logins, and for units of systemd. Raises TuningError."""
    logins, units = [], ["[Manager]"]
    for name, value in sorted(limits.items()):
        if name not in LIMIT_NAMES:
            raise TuningError(f"host_tuning_limits: {name!r} is no limit; {nearest(name, LIMIT_NAMES)}")
        text = str(value)
        if text != UNLIMITED and not (text.isascii() and text.isdecimal()):
            found = show_value(value)
            raise TuningError(f"host_tuning_limits: {name}: found {found}, expected a whole number or {UNLIMITED}")
        systemd, in_kib = LIMIT_NAMES[name]
        logins += [f"{who} {kind} {name} {text}" for who in ("*", "root") for kind in ("soft", "hard")]
        units.append(f"{systemd}={'infinity' if text == UNLIMITED else text + ('K' if in_kib else '')}")
    head = "# Written by the role host_tuning.\n"
    return {LIMITS_FILE: head + "\n".join(logins) + "\n", SYSTEMD_FILE: head + "\n".join(units) + "\n"}


def grub_text(words: tuple[str, ...]) -> str:
    """Return the content of the file that adds arguments to the kernel's command line."""
    return f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words)}"\n'
