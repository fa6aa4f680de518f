# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import (
    END,
    DiscoveryError,
    Observation,
    detected,
    parse_probe,
    summary,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.probe import probe_script

ARGUMENT_SPEC = {
    "catalog_path": {"type": "list", "elements": "path", "default": []},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
}


class ActionModule(ActionBase):
    """Asks a host with one command what it has, and looks that up in the catalogue, which is on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        host = (task_vars or {}).get("inventory_hostname", "")
        try:
            catalogue = load_catalogue(options["catalog_path"])
            observation = _observation(self._ask(probe_script(catalogue, options["sysfs_root"], options["proc_root"])))
        except (AcceleratorError, DiscoveryError) as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        short = summary(detected(observation, catalogue))
        return {**result, "changed": False, "observation": observation.as_dict(), "accelerator": short}

    def _ask(self, script: str) -> Mapping[str, Any]:
        """Run a script on the host with one command, as the user who logs in; nothing is copied there before."""
        if self._connection.has_pipelining:
            command, data = "/bin/sh -s", script.encode()
        else:  # it takes no input
            command, data = f"/bin/sh -c {shlex.quote(script)}", None
        # Without an executable the command is wrapped in another shell.
        said: Mapping[str, Any] = self._low_level_execute_command(
            command, in_data=data, sudoable=False, executable=False, encoding_errors="replace"
        )
        return said


def _observation(said: Mapping[str, Any]) -> Observation:
    """Return the answer of the probe; what the host complained about is told where there is none."""
    try:
        return parse_probe(said["stdout"])
    except DiscoveryError as exc:
        complaint = next((line.strip() for line in reversed(said["stderr"].splitlines()) if line.strip()), "")
        if END in said["stdout"] or not complaint:
            raise
        raise DiscoveryError(f"{exc} (status {said['rc']}: {complaint[:200]})") from exc
