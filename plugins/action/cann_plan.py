# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..module_utils.cann.answers import Installed
from ..module_utils.cann.chips import STACK, CannHardware, hardware_of
from ..module_utils.cann.installers import read_files
from ..module_utils.cann.packages import is_ours
from ..module_utils.vendor_stack.model import DriverPlan
from ..plugin_utils.cann.plan import CannRequest, MatrixRow, plan_driver
from ..plugin_utils.planning.inputs import PlanError
from ..plugin_utils.vendor_stack.action import StackAction, StackInputs


class ActionModule(StackAction):
    """Decides what Huawei's driver, firmware and CANN need."""

    stack = STACK
    ROLES = (STACK,)
    state_options = ("user", "group")

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> CannRequest:
        return CannRequest(
            release=options["release"],
            row=_row(options, release),
            asked=bool(options["driver_version"]),
            source=options["source"],
            policy=options["policy"],
            mirror=options["mirror"],
            key=options["repository_key"],
            format=options["format"],
            files=read_files(options["run_files"]),
            licence_accepted=options["licence_accepted"],
            toolkit=options["toolkit"],
            user=options["user"],
            group=options["group"],
            hold=options["hold"],
        )

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        return plan_driver(
            inputs.host, _hardware(inputs), Installed(**inputs.state["installed"]), inputs.request, offered
        )

    def version_packages(self, plan: DriverPlan) -> list[str]:
        return [package.name for package in plan.packages if is_ours(package.name)]

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        row = inputs.request.row
        return {
            "minimum_driver": row.driver,
            "cann_version": row.cann,
            "nodes": list(_hardware(inputs).nodes),
            "driver": inputs.state["driver"],
        }


def _hardware(inputs: StackInputs) -> CannHardware:
    return hardware_of(inputs.detected, inputs.catalogue)


def _row(options: Mapping[str, Any], release: Mapping[str, Any]) -> MatrixRow:
    """Return the matching versions: those of the release, or the site's own. Raises PlanError where unknown."""
    cann = options["version"] or release.get("cann", "")
    driver = options["driver_version"] or release.get("hdk", "")
    if not cann or not driver:
        lacking = (
            "no version of CANN (cann); set cann_version" if not cann else "no driver (hdk); set cann_driver_version"
        )
        raise PlanError(f"release {options['release']!r} names {lacking} or choose another cann_release")
    # The release's firmware is only for the release's driver.
    firmware = "" if options["driver_version"] else release.get("firmware", "")
    return MatrixRow(cann, driver, options["firmware_version"] or firmware)
