# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host may be rebooted for its driver: with permission, once per reason, never the controller."""

from __future__ import annotations

from typing import Sequence


def boot_mark(boot: str, reasons: Sequence[str]) -> str:
    """Return the text of the mark that a host gets before its reboot: the id of the present boot and the reasons."""
    return "\n".join([boot, *reasons, ""])


def reboot_refusal(
    reasons: Sequence[str], allowed: bool, boot: str, controllers_boot: str, mark: str, stack: str
) -> str | None:
    """Return why a host that needs a reboot for ``reasons`` must not be rebooted, None if it may.

    ``boot`` is the kernel's boot_id on the host, ``controllers_boot`` that of the controller: a host on the same kernel
    is the controller or a container on it. ``mark`` is the text of boot_mark() on the host, empty if there is none.
    """
    why = "; ".join(reasons)
    if boot == controllers_boot:
        return f"a reboot is needed ({why}), and this host is the controller or runs on its kernel: reboot it by hand"
    if not allowed:
        advice = "allow it, or reboot by hand and run again"
        return f"a reboot is needed ({why}), and {stack}_reboot_allowed is false: {advice}"
    before, _newline, then = mark.partition("\n")
    if then and before != boot and then == boot_mark("", reasons)[1:]:
        return f"the host was already rebooted for this, without success: {why}; read 'journalctl --boot' on the host"
    return None
