# SPDX-License-Identifier: GPL-3.0-or-later

import shlex
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.accelerator.recognition import AcceleratorError
from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.discovery.observations import END, DiscoveryError, Observation, detected, parse_probe, summary
from ..plugin_utils.discovery.probe import probe_script


class ActionModule(ControllerAction):
    """Ask a host with one command for its hardware and look it up in the catalogue, which is on the controller."""

    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables.get("inventory_hostname", "")
        try:
            catalogue = load_catalogue(options["catalog_path"])
            script = probe_script(catalogue, options["sysfs_root"], options["proc_root"])
            observation = _observation(self._run_script(script))
        except (AcceleratorError, DiscoveryError) as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        return {"observation": observation.as_dict(), "accelerator": summary(detected(observation, catalogue))}

    def _run_script(self, script: str) -> Mapping[str, Any]:
        """Run a script on the host with one command, as the user who logs in; nothing is copied there before."""
        if self._connection.has_pipelining:
            command, data = "/bin/sh -s", script.encode()
        else:  # it takes no input
            command, data = f"/bin/sh -c {shlex.quote(script)}", None
        # Without an executable the command is wrapped in another shell.
        answer: Mapping[str, Any] = self._low_level_execute_command(
            command, in_data=data, sudoable=False, executable=False, encoding_errors="replace"
        )
        return answer


def _observation(answer: Mapping[str, Any]) -> Observation:
    """Return the answer of the probe. Raises DiscoveryError with the host's last error line if there is none."""
    try:
        return parse_probe(answer["stdout"])
    except DiscoveryError as exc:
        complaint = next((line.strip() for line in reversed(answer["stderr"].splitlines()) if line.strip()), "")
        if END in answer["stdout"] or not complaint:
            raise
        raise DiscoveryError(f"{exc} (status {answer['rc']}: {complaint[:200]})") from exc
