# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that are the distribution's and not a vendor's: kernels, their headers, DKMS."""

from __future__ import annotations

from tests.standins.packages import Package, stub
from tests.standins.vendor import Options

# DKMS itself is newer than any that a distribution has, so that the stand-in's is the one that is taken.
DKMS_VERSION = "99"
HOOK = "if command -v dkms >/dev/null && [ -e /lib/modules/{kernel}/build ]; then dkms autoinstall -k {kernel}; fi\n"
NO_HEADERS = (
    "if command -v dkms >/dev/null && [ ! -e /lib/modules/{kernel}/build ]; then\n"
    '  echo "dkms: WARNING: Linux headers are missing, which may explain the above failures."\n'
    '  echo "      please install the linux-headers-{kernel} package to fix this."\nfi\n'
)


def packages(options: Options) -> list[Package]:
    """Return DKMS, and image and headers of each kernel, which have DKMS build for it as Debian's hooks do."""
    return [Package("dkms", DKMS_VERSION, files={"usr/sbin/dkms": stub("dkms")}), *kernels(options)]


def kernels(options: Options) -> list[Package]:
    """Return image and headers of each kernel."""
    found = []
    for kernel in options.kernels:
        image = {f"boot/vmlinuz-{kernel}": "stand-in\n", f"lib/modules/{kernel}/modules.builtin": "\n"}
        headers = {f"lib/modules/{kernel}/build/Makefile": "# stand-in\n"}
        configure = f'[ "$1" = configure ] || exit 0\n{HOOK}'.format(kernel=kernel)
        found += [
            Package(f"linux-image-{kernel}", "1", files=image, postinst=configure + NO_HEADERS.format(kernel=kernel)),
            Package(f"linux-headers-{kernel}", "1", files=headers, postinst=configure),
        ]
    return found
