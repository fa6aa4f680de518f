# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, ClassVar, Mapping

from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import misspelt
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import read
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.action import ControllerAction
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import ROLES

# What else has a role's prefix: facts, what people declare of a host for the plans, what the inventory plugin sets, and
# what roles offer to other roles (their READMEs: "What other roles may read and set").
FACTS = (
    "accelerator_bmc", "accelerator_bmc_password", "accelerator_bmc_username", "accelerator_cann_version",
    "accelerator_conflict", "accelerator_container_runtime", "accelerator_cuda_version", "accelerator_detected",
    "accelerator_discovered_at", "accelerator_discovery_cache", "accelerator_driver_version",
    "accelerator_firmware_version", "accelerator_mec_firmware", "accelerator_memory_gib", "accelerator_mixed",
    "accelerator_rocm_version", "accelerator_stale",
    "cann_host", "container_runtime_host", "cuda_host", "rocm_host",
    "rollout_kind", "rollout_plan", "rollout_refused", "rollout_wave_number", "rollout_wave_result",
    "vllm_driver_changes", "vllm_files", "vllm_host_state", "vllm_kept_slots", "vllm_plan", "vllm_restore_slots",
)  # fmt: skip
# Old names of options, which the defaults still read, with the names that they have now.
RENAMED = {
    "gateway_backends_min": "gateway_min_available",
    "rollout_least": "rollout_min_available",
}
REMOVED_IN = "0.9.0"


class ActionModule(ControllerAction):
    """Compares the host's variables with the role's argument spec."""

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {"role": {"type": "str", "required": True}}

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        role, host = options["role"], variables.get("inventory_hostname", "")
        known = options_of(role)
        owned = sorted(name for name in variables if name.startswith(f"{role}_") and name not in {*known, *FACTS})
        unknown = [name for name in owned if name not in RENAMED]
        warnings = [
            f"{host}: {name} is now called {RENAMED[name]}; release {REMOVED_IN} no longer reads the old name"
            for name in owned
            if name in RENAMED
        ]
        for name in unknown:
            meant = misspelt(name, known)
            if meant:
                raise AnsibleActionFail(f"{host}: {name} is no option of the role {role}; nearest: {meant!r}")
        if unknown:
            warnings.append(f"{host}: the role {role} has no option called {', '.join(unknown)}; nothing reads it")
        return {"unknown": unknown, **({"warnings": warnings} if warnings else {})}


def options_of(role: str) -> set[str]:
    """Return the names of the options of all entry points of a role."""
    specs = read(ROLES / role / "meta" / "argument_specs.yml")["argument_specs"]
    return {name for entry in specs.values() for name in entry.get("options") or {}}
