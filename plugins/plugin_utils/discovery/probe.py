# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of the probe: probe.sh and its call, for a host's shell."""

import functools
import shlex
from pathlib import Path

from ...module_utils.accelerator.drivers_host import ASCEND_DRIVER
from ...module_utils.accelerator.recognition import Catalogue

SCRIPT = Path(__file__).with_name("probe.sh")


def probe_words(catalogue: Catalogue) -> list[str]:
    """Return the arguments of the probe: vendors, and the classes and ids that count although every server has such."""
    words = set(catalogue.pci_vendors) | set(catalogue.chips) | set(catalogue.switches)
    words.update(
        f"{vendor_id}/{class_id}" for vendor_id, vendor in catalogue.pci_vendors.items() for class_id in vendor.classes
    )
    return sorted(words)


def probe_script(
    catalogue: Catalogue, sysfs_root: str = "/sys", proc_root: str = "/proc", ascend_driver: str = ASCEND_DRIVER
) -> str:
    """Return the whole text for a POSIX shell of the host. observations.parse_probe reads its output."""
    return f"{_functions()}\nprobe {shlex.join([sysfs_root, proc_root, ascend_driver, *probe_words(catalogue)])}\n"


@functools.lru_cache(maxsize=None)
def _functions() -> str:
    return SCRIPT.read_text(encoding="utf-8")
