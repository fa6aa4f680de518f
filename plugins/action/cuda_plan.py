# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.cuda.chips import (
    NVLINK5,
    STACK,
    Hardware,
    hardware_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.packages import is_kernel
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.cuda.plan import FILES, Wish, plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack.action import Look, StackAction


class ActionModule(StackAction):
    """Decides what NVIDIA's driver needs."""

    stack = STACK
    arguments: Mapping[str, Mapping[str, Any]] = {"epel_mirror": {"type": "str", "default": ""}}
    paths = tuple(file.path for file in FILES)

    def wish(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> Wish:
        minimum = release.get("minimum_driver") or options["version"]
        if not minimum:
            name = options["release"]
            raise PlanError(
                f"release {name!r} names no minimum_driver for cuda; set cuda_version or another cuda_release"
            )
        return Wish(
            options["release"],
            minimum,
            options["version"],
            options["source"],
            options["policy"],
            options["mirror"],
            options["epel_mirror"],
            options["hold"],
        )

    def decide(self, look: Look, offered: Mapping[str, Sequence[str]] | None) -> Plan:
        # The module's package decides on the version of all.
        versions = next(iter(offered.values())) if offered else None
        return plan(look.host, _hardware(look), look.wish, versions)

    def chosen(self, plan: Plan) -> list[str]:
        return [package.name for package in plan.packages if is_kernel(package.name)]

    def more(self, look: Look) -> dict[str, Any]:
        return {
            "minimum_driver": look.wish.minimum,
            "fabric": _hardware(look).fabric or "none",
            "driver": look.state["driver"],
        }


def _hardware(look: Look) -> Hardware:
    return hardware_of(look.detected, look.catalogue, look.state["fabric"] == NVLINK5)
