# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..module_utils.rocm.chips import STACK, RocmHostState
from ..module_utils.rocm.packages import PREFERENCES, is_driver
from ..module_utils.rocm.releases import release_of
from ..module_utils.rocm.settings import GRUB_FILE, NUMA, Settings
from ..module_utils.vendor_stack.chips import Chip, chips_of
from ..module_utils.vendor_stack.model import DriverPlan
from ..plugin_utils.rocm.plan import RocmRequest, minimum_of, plan_driver
from ..plugin_utils.vendor_stack.action import StackAction, StackInputs


class ActionModule(StackAction):
    """Decides what AMD's driver needs."""

    stack = STACK
    ROLES = (STACK,)
    state_options = ("users",)
    paths = (GRUB_FILE, NUMA.path, PREFERENCES.path)

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> RocmRequest:
        asked = options["version"]
        named = asked or release.get("rocm", "")
        # The driver in the release file belongs to the ROCm version in the same file.
        driver = release.get("amdgpu", "") if named == release.get("rocm") else ""
        rocm = release_of(named, driver) if named else None
        minimum = release.get("minimum_driver", "")
        if not minimum and release.get("rocm"):
            minimum = release_of(release["rocm"], release.get("amdgpu", "")).oldest
        settings = Settings(
            options["blacklist_remove"],
            options["iommu_pt"],
            options["numa_balancing_off"],
            tuple(options["users"]),
        )
        return RocmRequest(
            options["release"],
            rocm,
            bool(asked),
            minimum,
            options["source"],
            options["policy"],
            options["mirror"],
            options["epel_mirror"],
            options["hold"],
            options["userspace"],
            settings,
        )

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        return plan_driver(
            inputs.host, _chips(inputs), RocmHostState.from_dict(inputs.state["shown"]), inputs.request, offered
        )

    def version_packages(self, plan: DriverPlan) -> list[str]:
        return [package.name for package in plan.packages if is_driver(package.name)]

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        chips = _chips(inputs)
        return {
            "minimum_driver": minimum_of(chips, inputs.request)[0],
            "chips": [chip.address for chip in chips],
            "driver": inputs.state["driver"],
        }


def _chips(inputs: StackInputs) -> tuple[Chip, ...]:
    return chips_of(STACK, inputs.detected, inputs.catalogue)
