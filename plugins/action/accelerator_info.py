# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail

from ..module_utils.accelerator.cpu_host import Cpu
from ..module_utils.accelerator.pci_host import PciFunction
from ..module_utils.accelerator.recognition import (
    AcceleratorError,
    Catalogue,
    Detected,
    check_declared,
    disagreement,
    match,
    partition_disagreement,
    unusable,
)
from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.preload import preload
from ..plugin_utils.common.role_options import SERVING

preload(load_catalogue)


class ActionModule(ControllerAction):
    """Read the hardware on the host and look it up in the catalogue, which is on the controller."""

    ROLES = SERVING
    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables.get("inventory_hostname", "")
        try:
            catalogue = load_catalogue(options["catalog_path"])
            if options["declared"] is not None:
                check_declared(options["declared"], catalogue)
            found: dict[str, Any] = self._execute_module(
                module_args=_module_arguments(options, catalogue), task_vars=variables
            )
            if found.get("failed"):
                return found
            detected = match(
                [PciFunction(**function) for function in found["functions"]],
                catalogue,
                Cpu(**found["cpu"]),
                found["drivers"],
                options["declared"],
            )
            _compare(detected, options, catalogue)
        except AcceleratorError as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        document = {**detected.as_dict(), "pythons": found["pythons"], **_rdma(detected, found["rdma"])}
        result: dict[str, Any] = {"accelerator": document, "ansible_facts": {"accelerator_detected": document}}
        if detected.mixed and options["require_usable"]:
            counts = ", ".join(f"{key} x {count}" for key, count in detected.models.items())
            result["warnings"] = [
                f"{host}: several accelerators ({counts}); models are planned for {detected.model} only, and "
                "accelerator in the inventory chooses another"
            ]
        return result


def _rdma(detected: Detected, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the RDMA devices near the chips that models are planned for."""
    chips = {device["address"] for device in detected.devices if device["model"] == detected.model}
    near = [{**each, "near": {chip: at for chip, at in each["near"].items() if chip in chips}} for each in found]
    return {"rdma": kept} if (kept := [each for each in near if each["near"]]) else {}


def _module_arguments(options: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return the arguments of the module: the kernel's trees, and the vendors whose chips it reads."""
    vendors = options["vendors"] or sorted(catalogue.pci_vendors)
    return {"sysfs_root": options["sysfs_root"], "proc_root": options["proc_root"], "vendors": vendors}


def _compare(detected: Detected, options: Mapping[str, Any], catalogue: Catalogue) -> None:
    """Raise AcceleratorError if the host differs from the declaration or vLLM cannot serve on it.

    Unusable chips are reported first: an unknown chip would also look like a missing one.
    """
    problem = unusable(detected, catalogue) if options["require_usable"] else None
    problem = problem or disagreement(options["declared"], options["declared_count"], detected)
    if options["declared"] or options["declared_partition"]:
        problem = problem or partition_disagreement(options["declared_partition"], detected)
    if problem:
        raise AcceleratorError(problem)
