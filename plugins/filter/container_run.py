# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..module_utils.containers.run_command import (
    command_of,
    container_name,
    owner_of,
    quadlet_lines,
    run_words,
)
from ..module_utils.vllm.plan_document import PlanDocument


def container_run(plan: PlanDocument, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the templates of a container's unit write."""
    return {
        "command": command_of(settings),
        "name": container_name(plan["instance"]),
        "owner": owner_of(plan["container"] or {}, settings),
        "words": run_words(plan, settings),
        "quadlet": quadlet_lines(plan, settings),
    }


class FilterModule:
    """Filters of containers."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"container_run": container_run}
