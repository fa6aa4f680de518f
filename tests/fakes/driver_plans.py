# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of drivers, and refusals in the same form."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DriverPlan, StackError


def halting(plan_driver):
    """Return the function with its StackError as ``halt`` of an empty plan, so that a test compares both alike."""

    def planned(*inputs, **options):
        halt = None
        try:
            found = plan_driver(*inputs, **options)
        except StackError as exc:
            found, halt = DriverPlan(), str(exc)
        object.__setattr__(found, "halt", halt)
        return found

    return planned
