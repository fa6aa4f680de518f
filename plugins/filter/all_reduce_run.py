# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..module_utils.containers.program_command import program_run
from ..module_utils.vllm.plan_document import PlanDocument

# So that NCCL's log has how it gets to the other hosts.
LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}


def all_reduce_run(plan: PlanDocument, settings: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the options of M(group_all_reduce) for one instance of this host, but for the program."""
    group = plan["group"]
    logged = {**plan, "env": {**plan["env"], **(LOG if plan["stack"] in ("cuda", "rocm") else {})}}
    arguments = {
        "stack": plan["stack"],
        "hosts": group["hosts"],
        "rank": group["rank"],
        "chips": 1 if plan["stack"] == "cpu" else max(1, len(plan["chips"])),
        "head": group["head_address"],
        "port": group["port"],
        "seconds": float(seconds),
    }
    return {**program_run(logged, settings), "arguments": arguments}  # type: ignore[arg-type]


class FilterModule:
    """The filter of an all-reduce."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"all_reduce_run": all_reduce_run}
