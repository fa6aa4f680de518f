# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Mapping

from ansible.errors import AnsibleActionFail

from ..module_utils.container_runtime.facts import TOOLKITS, HostState, RuntimePlanError
from ..module_utils.containers.engine import ENGINES
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.addresses import AddressError, refuse_login
from ..plugin_utils.container_runtime.model import POLICIES, SOURCES, Request
from ..plugin_utils.container_runtime.plan import plan_engine


class ActionModule(ControllerAction):
    """Decides what a host's container engine needs."""

    ROLES = ("container_runtime",)
    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {
        "system": {"type": "dict", "required": True},
        "engine": {"type": "str", "choices": list(ENGINES), "default": "docker"},
        "source": {"type": "str", "choices": list(SOURCES), "default": "vendor"},
        "version": {"type": "str", "default": ""},
        "policy": {"type": "str", "choices": list(POLICIES), "default": "retain"},
        "hold": {"type": "bool", "default": True},
        "toolkit": {"type": "str", "choices": list(TOOLKITS), "default": "auto"},
        "stack": {"type": "str", "default": "cpu"},
        "ascend_file": {
            "type": "dict",
            "default": {},
            "options": {"url": {"type": "str"}, "sha256": {"type": "str"}},
        },
        "ascend_licence_accepted": {"type": "bool", "default": False},
        "mirror_url": {"type": "str", "default": ""},
        "mirror_fingerprints": {"type": "list", "elements": "str", "default": [], "no_log": False},
        "storage": {"type": "str", "default": ""},
        "registry_mirrors": {"type": "list", "elements": "str", "default": []},
        "insecure_registries": {"type": "list", "elements": "str", "default": []},
        "restart_allowed": {"type": "bool", "default": False},
    }
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
