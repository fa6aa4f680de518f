# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.netbox.client import NetBox
from ..plugin_utils.netbox.items import Item, NetBoxError, wanted_items
from ..plugin_utils.netbox.write import compare_devices, write_changes

SHOWN = 20


class ActionModule(ControllerAction):
    """Compare all hosts of the play with NetBox at once, then write what differs."""

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {
        "url": {"type": "str", "default": ""},
        "ca_file": {"type": "path", "default": ""},
        "hardware": {"type": "str", "required": True},
        "identity": {"type": "str", "required": True},
        "device_names": {"type": "dict", "default": {}},
    }
    ERRORS = (NetBoxError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hosts, names = variables["ansible_play_hosts_all"], options["device_names"]
        wanted, warnings = _collect(hosts, variables["hostvars"], options["hardware"], options["identity"])
        if not wanted:
            raise AnsibleActionFail(f"none of {len(hosts)} hosts answered, so nothing was compared; {warnings[0]}")
        # Not an option of the task: Ansible can print those.
        token = self._templar.template(variables.get("netbox_token")) or os.environ.get("NETBOX_TOKEN", "")
        netbox = NetBox(options["url"] or os.environ.get("NETBOX_API", ""), str(token), options["ca_file"])
        found = compare_devices(netbox, {str(names.get(host) or host): items for host, items in wanted.items()})
        if found.missing:
            strangers = ", ".join(found.missing[:SHOWN])
            warnings.append(f"NetBox has no device called {strangers}: nothing is written for it")
        for name, changes in found.changes.items():
            if changes.foreign:
                warnings.append(
                    f"{name}: {', '.join(changes.foreign)}: NetBox has an item of this name without the tag "
                    "baremetal-inference, which stays unchanged; remove it, or give it the tag"
                )
        lines = [f"{name}: {line}" for name, changes in found.changes.items() for line in changes.lines]
        if lines and not self._task.check_mode:
            write_changes(netbox, found)
        result: dict[str, Any] = {"changed": bool(lines), "changes": lines, "warnings": warnings}
        if self._task.diff and lines:
            result["diff"] = {"prepared": "\n".join(lines) + "\n"}
        return {**result, "devices": sorted(found.changes), "missing": list(found.missing)}


def _collect(hosts: list[str], hostvars: Any, hardware: str, identity: str) -> tuple[dict[str, list[Item]], list[str]]:
    """Return the items of each host that answered, and a warning for each that did not, or only in part."""
    wanted: dict[str, list[Item]] = {}
    warnings = []
    for host in hosts:
        # Reading one variable this way is cheaper than hostvars[host], which templates.
        found, known = (_mapping(hostvars.raw_get(host).get(name)) for name in (hardware, identity))
        if "accelerator" not in found:
            warnings.append(f"{host}: {str(found.get('msg') or 'no answer')[:300]}; its items stay unchanged")
            continue
        wanted[host] = wanted_items(found["accelerator"], known.get("chips", ()))
        warnings += [f"{host}: {problem}, so serial numbers may be missing" for problem in known.get("problems", ())]
        if "chips" not in known:
            warnings.append(f"{host}: no serial numbers: {str(known.get('msg') or 'no answer')[:300]}")
    return wanted, warnings


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
