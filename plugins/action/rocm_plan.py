# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import STACK, Chip, Shown, chips_of
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.packages import (
    NO_USERSPACE,
    PREFERENCES,
    USERSPACES,
    is_driver,
)
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import release_of
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.settings import GRUB_FILE, NUMA, Settings
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import Wish, minimum_of, plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack.action import Look, StackAction

SWITCH = {"type": "bool", "default": False}


class ActionModule(StackAction):
    """Decides what AMD's driver needs."""

    stack = STACK
    arguments: Mapping[str, Mapping[str, Any]] = {
        "epel_mirror": {"type": "str", "default": ""},
        "userspace": {"type": "str", "choices": list(USERSPACES), "default": NO_USERSPACE},
        "users": {"type": "list", "elements": "str", "default": []},
        "blacklist_remove": SWITCH,
        "iommu_pt": SWITCH,
        "numa_balancing_off": SWITCH,
    }
    state_options = ("users",)
    paths = (GRUB_FILE, NUMA.path, PREFERENCES.path)

    def wish(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> Wish:
        asked = options["version"]
        named = asked or release.get("rocm", "")
        # The driver of the release file belongs to the ROCm that stands beside it there.
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
        return Wish(
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

    def decide(self, look: Look, offered: Mapping[str, Sequence[str]] | None) -> Plan:
        return plan(look.host, _chips(look), Shown.from_dict(look.state["shown"]), look.wish, offered)

    def chosen(self, plan: Plan) -> list[str]:
        return [package.name for package in plan.packages if is_driver(package.name)]

    def more(self, look: Look) -> dict[str, Any]:
        chips = _chips(look)
        return {
            "minimum_driver": minimum_of(chips, look.wish)[0],
            "chips": [chip.address for chip in chips],
            "driver": look.state["driver"],
        }


def _chips(look: Look) -> tuple[Chip, ...]:
    return chips_of(look.detected, look.catalogue)
