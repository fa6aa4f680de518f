# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..module_utils.cuda.chips import NVLINK5, STACK, CudaHardware, hardware_of
from ..module_utils.cuda.packages import is_kernel
from ..module_utils.vendor_stack.model import DriverPlan
from ..plugin_utils.cuda.plan import FILES, CudaRequest, plan_driver
from ..plugin_utils.planning.inputs import PlanError
from ..plugin_utils.vendor_stack.action import StackAction, StackInputs


class ActionModule(StackAction):
    """Decides what NVIDIA's driver needs."""

    stack = STACK
    ROLES = (STACK,)
    paths = tuple(file.path for file in FILES)

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> CudaRequest:
        minimum = release.get("minimum_driver") or options["version"]
        if not minimum:
            name = options["release"]
            raise PlanError(
                f"vLLM release {name!r} does not say which NVIDIA driver it needs; set cuda_version to a driver branch "
                'such as "580", or set vllm_release (cuda_release) to another release'
            )
        return CudaRequest(
            options["release"],
            minimum,
            options["version"],
            options["source"],
            options["policy"],
            options["mirror"],
            options["epel_mirror"],
            options["hold"],
        )

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        # The module's package decides on the version of all.
        versions = next(iter(offered.values())) if offered else None
        return plan_driver(inputs.host, _hardware(inputs), inputs.request, versions)

    def version_packages(self, plan: DriverPlan) -> list[str]:
        return [package.name for package in plan.packages if is_kernel(package.name)]

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        return {
            "minimum_driver": inputs.request.minimum,
            "fabric": _hardware(inputs).fabric or "none",
            "driver": inputs.state["driver"],
        }


def _hardware(inputs: StackInputs) -> CudaHardware:
    return hardware_of(inputs.detected, inputs.catalogue, inputs.state["fabric"] == NVLINK5)
