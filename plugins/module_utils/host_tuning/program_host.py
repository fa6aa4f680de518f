# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host does by itself: set its settings at each boot, return to the former ones, show both."""

from __future__ import annotations

import json

from .host import HostSettings
from .plan import Plan, decide, describe
from .settings import AT_BOOT, wanted_of

NOTHING = {"limits": {}, "iommu_pt": False}


def plan_of(path: str, back: bool = False) -> tuple[HostSettings, Plan]:
    """Return the host and its plan from the configuration at ``path``; ``back`` is the way back. Raises TuningError."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    host = HostSettings(config["sysfs_root"], config["proc_root"])
    wanted = {} if back else wanted_of({**config["settings"], **NOTHING}, (), False)
    saved = host.saved()
    lost = {setting: values for setting, values in saved.items() if setting in AT_BOOT}
    plan = decide(wanted, host.read({*wanted, *lost}), lost)
    return host, Plan(plan.steps, plan.notes, {**saved, **plan.saved})


def apply(path: str, back: bool = False) -> str:
    """Set the settings, or return to those from before; return a line for each. Raises TuningError."""
    host, plan = plan_of(path, back)
    host.apply(plan)
    return "\n".join([*describe(plan.steps), *plan.notes])


def status(path: str) -> tuple[int, str]:
    """Return how many values are not as configured, and a line for each setting. Raises TuningError."""
    _host, plan = plan_of(path)
    return len(plan.changes), "\n".join([*describe(plan.steps), *plan.notes])
