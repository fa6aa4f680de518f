# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import Installed
from ansible_collections.baremetal.inference.plugins.module_utils.cann.chips import STACK, Hardware, hardware_of
from ansible_collections.baremetal.inference.plugins.module_utils.cann.installers import USER, read_files
from ansible_collections.baremetal.inference.plugins.module_utils.cann.packages import is_ours
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.cann.plan import AUTO, FORMATS, Row, Wish, plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack.action import Look, StackAction

RUN_FILE = {
    "name": {"type": "str", "default": ""},
    "url": {"type": "str", "required": True},
    "sha256": {"type": "str", "default": ""},
}


class ActionModule(StackAction):
    """Decides what Huawei's driver, firmware and CANN need."""

    stack = STACK
    arguments: Mapping[str, Mapping[str, Any]] = {
        "driver_version": {"type": "str", "default": ""},
        "firmware_version": {"type": "str", "default": ""},
        "repository_key": {"type": "str", "default": ""},
        "format": {"type": "str", "choices": list(FORMATS), "default": AUTO},
        "run_files": {"type": "list", "elements": "dict", "default": [], "options": RUN_FILE},
        "licence_accepted": {"type": "bool", "default": False},
        "toolkit": {"type": "bool", "default": False},
        "user": {"type": "str", "default": USER},
        "group": {"type": "str", "default": USER},
    }
    state_options = ("user", "group")

    def wish(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> Wish:
        return Wish(
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

    def decide(self, look: Look, offered: Mapping[str, Sequence[str]] | None) -> Plan:
        return plan(look.host, _hardware(look), Installed(**look.state["installed"]), look.wish, offered)

    def chosen(self, plan: Plan) -> list[str]:
        return [package.name for package in plan.packages if is_ours(package.name)]

    def more(self, look: Look) -> dict[str, Any]:
        row = look.wish.row
        return {
            "minimum_driver": row.driver,
            "cann_version": row.cann,
            "nodes": list(_hardware(look).nodes),
            "driver": look.state["driver"],
        }


def _hardware(look: Look) -> Hardware:
    return hardware_of(look.detected, look.catalogue)


def _row(options: Mapping[str, Any], release: Mapping[str, Any]) -> Row:
    """Return what belongs together, by the release and what the site sets itself. Raises PlanError where unknown."""
    cann = options["version"] or release.get("cann", "")
    driver = options["driver_version"] or release.get("hdk", "")
    if not cann or not driver:
        lacking = "no CANN (cann), set cann_version" if not cann else "no driver (hdk), set cann_driver_version"
        raise PlanError(f"release {options['release']!r} names for cann {lacking} or another cann_release")
    # Firmware of the release belongs to its driver, not to another.
    firmware = "" if options["driver_version"] else release.get("firmware", "")
    return Row(cann, driver, options["firmware_version"] or firmware)
