# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Iterable, Mapping

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.of_hosts import (
    GATEWAYS,
    clusters_of,
    gateways_of,
    hosts_behind,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayError

ARGUMENT_SPEC = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "group": {"type": "str", "default": GATEWAYS},
}
NEEDED = ("cluster", "gateway_cluster", "gateway_backends")


class ActionModule(ActionBase):
    """Reads the inventory on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        variables = task_vars or {}
        groups, hosts = variables["groups"], options["hosts"]
        known = set(groups["all"])
        unknown = [f"{host} ({nearest(host, known)})" for host in hosts if host not in known]
        if unknown:
            raise AnsibleActionFail(f"hosts: the inventory has no {', '.join(unknown)}")
        read = _Variables(variables["hostvars"], self._loader)
        try:
            found = gateways_of(hosts, groups, read, options["group"])
            clusters = clusters_of(hosts, read)
        except GatewayError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        told = {"gateways": found, "hosts": hosts_behind(found), "clusters": clusters}
        return {**result, "changed": False, **told}


class _Variables:
    """The few variables that matter of each host; what is no template is not templated, which would take long."""

    def __init__(self, hostvars: Any, loader: Any) -> None:
        self._hostvars = hostvars
        self._loader = loader

    def __getitem__(self, host: str) -> Mapping[str, Any]:
        own = self._hostvars.raw_get(host)
        found = {name: own[name] for name in NEEDED if name in own}
        if any("{{" in text or "{%" in text for text in _texts(found.values())):
            templar = Templar(loader=self._loader, variables={**own, "hostvars": self._hostvars})
            try:
                return {name: templar.template(value) for name, value in found.items()}
            except AnsibleError as exc:
                raise AnsibleActionFail(f"{host}: {', '.join(found)}: {exc}") from exc
        return found


def _texts(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        yield from _texts(value) if isinstance(value, (list, tuple)) else (str(value),)
