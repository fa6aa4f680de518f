# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import fields
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.container_runtime.facts import HostState, RuntimePlanError
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.addresses import AddressError, refuse_login
from ..plugin_utils.container_runtime.model import Request
from ..plugin_utils.container_runtime.plan import plan_engine


class ActionModule(ControllerAction):
    """Decides what a host's container engine needs."""

    ROLES = ("container_runtime",)
    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, system = variables.get("inventory_hostname", ""), options["system"]
        try:
            refuse_login("container_runtime_mirror_url", options["mirror_url"])
        except AddressError as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        found: dict[str, Any] = self._execute_module(
            module_name="baremetal.inference.container_runtime_state",
            module_args={"packager": system["packager"]},
            task_vars=variables,
        )
        if found.get("failed"):
            return found
        request = Request(**{field.name: options[field.name] for field in fields(Request)})
        try:
            plan = plan_engine(request, system, HostState.from_dict(found["host"]))
        except RuntimePlanError as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        return {"changes": plan.changes, "installs": plan.installs, "plan": plan.as_dict()}
