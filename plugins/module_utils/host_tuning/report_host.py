# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host must not be rebooted for its settings, and the diff of the settings."""

from __future__ import annotations

from typing import Any

from ..common.files_host import text_of
from ..common.processes_host import boot_id
from ..vendor_stack.reboot import reboot_refusal
from .host import REBOOT_MARK, HostSettings
from .plan import Plan


def refusal_of(options: dict[str, Any], host: HostSettings, reasons: list[str]) -> str | None:
    """Return why the host must not be rebooted for these reasons, None if it may be or need not."""
    if not reasons:
        return None
    running = host.running_instances()
    if running and options["reboot_allowed"]:
        return (
            f"a reboot is needed ({'; '.join(reasons)}), and {', '.join(running)} serves requests: drain the host with "
            "drain.yml and stop the instances first"
        )
    return reboot_refusal(
        reasons,
        options["reboot_allowed"],
        boot_id(),
        options["controllers_boot"],
        text_of(REBOOT_MARK),
        "host_tuning",
    )


def diff_of(plan: Plan) -> dict[str, str]:
    """Return the values before and after as Ansible shows them."""
    before = [f"{step.setting} of {step.place}: {step.before.strip() or 'none'}\n" for step in plan.changes]
    after = [f"{step.setting} of {step.place}: {step.after.strip() or 'none'}\n" for step in plan.changes]
    return {
        "before_header": "settings of the host",
        "after_header": "settings of the host",
        "before": "".join(before),
        "after": "".join(after),
    }
