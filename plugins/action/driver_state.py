# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils.catalog.faults import FaultsError, faults_of_host
from ..plugin_utils.common.action import ControllerAction


class ActionModule(ControllerAction):
    """Runs the module on the host, with the catalogue of faults that the controller has."""

    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        try:
            faults = faults_of_host(options["stack"], options["fault_path"])
        except FaultsError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        arguments = {**self._task.args, "faults": faults}
        result: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=variables)
        return result
