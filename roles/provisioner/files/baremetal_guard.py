# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lock, in the ramdisk: the agent writes over no disk that holds a host which nobody has released.

Ironic's agent loads it as a hardware manager. The step comes before write_image (priority 80). A wipe takes the disks
that it names, where the agent's own steps take all disks of the server.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.disk_marks_host import refusal
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.named_disks import NamedDiskError
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning.wipe_host import ARGUMENTS, wipe
from ironic_python_agent import errors, hardware


class BaremetalGuard(hardware.HardwareManager):
    """Adds a step before the image is written, and one that wipes named disks."""

    HARDWARE_MANAGER_NAME = "baremetal_guard"
    HARDWARE_MANAGER_VERSION = "1"

    def evaluate_hardware_support(self) -> int:
        """Return that it supports this hardware."""
        return int(hardware.HardwareSupport.SERVICE_PROVIDER)

    def get_deploy_steps(self, node: Any, ports: Any) -> list[dict[str, Any]]:  # noqa: ARG002  the agent's signature
        """Return the step of a deployment."""
        return [{"step": "refuse_known_host", "priority": 95, "interface": "deploy", "reboot_requested": False}]

    def refuse_known_host(self, node: dict[str, Any], ports: Any) -> str:  # noqa: ARG002  the agent's signature
        """Fail where the chosen disk holds a host that is not the released one."""
        released = str((node.get("extra") or {}).get("released") or "")
        device = hardware.dispatch_to_managers("get_os_install_device", permit_refresh=True)
        reason = refusal(device, released)
        if reason:
            raise errors.DeploymentError(reason)
        return f"{device} holds no host, or the released one"

    def get_clean_steps(self, node: Any, ports: Any) -> list[dict[str, Any]]:  # noqa: ARG002  the agent's signature
        """Return the step of a wipe, which runs only where it is ordered by name."""
        step = {"step": "wipe_named_disks", "priority": 0, "interface": "deploy", "reboot_requested": False}
        return [{**step, "abortable": True, "argsinfo": ARGUMENTS}]

    def wipe_named_disks(self, node: dict[str, Any], ports: Any, disks: list[str], secure: bool = False) -> str:
        """Let the agent wipe these disks and no others."""
        try:
            return wipe(hardware.dispatch_to_managers, node, ports, disks, secure)
        except NamedDiskError as exc:
            raise errors.CleaningError(str(exc)) from None
