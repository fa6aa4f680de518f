# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import Cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import PciFunction
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import (
    AcceleratorError,
    Catalogue,
    Detected,
    check_declared,
    disagreement,
    match,
    unusable,
)
from ansible_collections.baremetal.inference.plugins.modules.accelerator_info import ARGUMENT_SPEC
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue


class ActionModule(ActionBase):
    """Reads the hardware on the host and looks it up in the catalogue, which is on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        host = (task_vars or {}).get("inventory_hostname", "")
        try:
            catalogue = load_catalogue(options["catalog_path"])
            if options["declared"] is not None:
                check_declared(options["declared"], catalogue)
            found = self._execute_module(module_args=_on_the_host(options, catalogue), task_vars=task_vars)
            if found.get("failed"):
                return {**result, **found}
            detected = match(
                [PciFunction(**function) for function in found["functions"]],
                catalogue,
                Cpu(**found["cpu"]),
                found["drivers"],
            )
            _compare(detected, options, catalogue)
        except AcceleratorError as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        document = detected.as_dict()
        if detected.mixed and options["require_usable"]:
            counts = ", ".join(f"{key} x {count}" for key, count in detected.models.items())
            result["warnings"] = [
                f"{host}: several accelerators ({counts}); models are planned for {detected.model} only"
            ]
        return {
            **result,
            "changed": False,
            "accelerator": document,
            "ansible_facts": {"accelerator_detected": document},
        }


def _on_the_host(options: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return the arguments of the module: where to look, and for whose chips."""
    vendors = options["vendors"] or sorted(catalogue.pci_vendors)
    return {"sysfs_root": options["sysfs_root"], "proc_root": options["proc_root"], "vendors": vendors}


def _compare(detected: Detected, options: Mapping[str, Any], catalogue: Catalogue) -> None:
    """Raise AcceleratorError where the host is not what was declared or is of no use to vLLM.

    What cannot be used comes first: an unknown chip would also look like a missing one.
    """
    problem = unusable(detected, catalogue) if options["require_usable"] else None
    problem = problem or disagreement(options["declared"], options["declared_count"], detected)
    if problem:
        raise AcceleratorError(problem)
