# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils._accelerators import AcceleratorError
from ansible_collections.baremetal.inference.plugins.module_utils._cuda import FILES, Wish, plan
from ansible_collections.baremetal.inference.plugins.module_utils._cuda_hardware import (
    NVLINK5,
    STACK,
    Hardware,
    hardware_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils._cuda_packages import is_kernel
from ansible_collections.baremetal.inference.plugins.module_utils._errors import PlanError
from ansible_collections.baremetal.inference.plugins.module_utils._stack import (
    POLICIES,
    RETAIN,
    SOURCES,
    VENDOR,
    Host,
    Plan,
    boot_mark,
    no_reboot,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils._catalogue import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils._serving import load_release

PATHS = {"type": "list", "elements": "path", "default": []}
ARGUMENT_SPEC = {
    "detected": {"type": "dict", "required": True},
    "release": {"type": "str", "required": True},
    "release_path": PATHS,
    "catalog_path": PATHS,
    "version": {"type": "str", "default": ""},
    "source": {"type": "str", "choices": list(SOURCES), "default": VENDOR},
    "policy": {"type": "str", "choices": list(POLICIES), "default": RETAIN},
    "mirror": {"type": "str", "default": ""},
    "epel_mirror": {"type": "str", "default": ""},
    "hold": {"type": "bool", "default": True},
    "reboot_allowed": {"type": "bool", "default": False},
    "resolve": {"type": "bool", "default": False},
    "root": {"type": "path", "default": "/"},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
}
MARK = "/var/lib/baremetal-cuda/rebooted"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ActionModule(ActionBase):
    """Reads the host and decides on the controller, where catalogue and releases are."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        name = (task_vars or {}).get("inventory_hostname", "")
        try:
            wish = _wish(options)
            catalogue = load_catalogue(options["catalog_path"])
            state = self._state(options, task_vars)
            if state.get("failed"):
                return {**result, **state}
            host = Host.from_dict(state["host"])
            hardware = hardware_of(options["detected"], catalogue, state["fabric"] == NVLINK5)
            found = plan(host, hardware, wish)
            asked = [package.name for package in found.packages if is_kernel(package.name)]
            if options["resolve"] and asked:
                offered = self._state({**options, "offered_of": asked}, task_vars)["offered"][asked[0]]
                found = plan(host, hardware, wish, offered)
        except (AcceleratorError, PlanError) as exc:
            raise AnsibleActionFail(f"{name}: {exc}") from exc
        if found.halt:
            raise AnsibleActionFail(f"{name}: {found.halt}")
        refused = _refused(found, state, options)
        loaded = state["driver"]["version"]
        if refused and asked and loaded:
            # Tools that are newer than the module would let no program start until then.
            raise AnsibleActionFail(f"{name}: driver {loaded} is not replaced, as no reboot may follow: {refused}")
        return {
            **result,
            "changed": False,
            "minimum_driver": wish.minimum,
            "no_reboot": refused,
            **_result(found, host, hardware, state),
        }

    def _state(self, options: Mapping[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Return what the host shows."""
        arguments = {key: options[key] for key in ("root", "sysfs_root", "proc_root", "hold")}
        arguments["contents_of"] = [MARK, *(file.path for file in FILES)]
        arguments["offered_of"] = options.get("offered_of", [])
        state: dict[str, Any] = self._execute_module(
            module_name="baremetal.inference.cuda_state", module_args=arguments, task_vars=task_vars
        )
        return state


def _wish(options: Mapping[str, Any]) -> Wish:
    """Return what the site wants, with the minimum of its release. Raises PlanError where that has none."""
    stacks = load_release(options["release"], options["release_path"])["stacks"]
    minimum = stacks.get(STACK, {}).get("minimum_driver") or options["version"]
    if not minimum:
        raise PlanError(
            f"release {options['release']!r} names no minimum_driver for cuda; set cuda_version or another cuda_release"
        )
    return Wish(
        options["release"],
        minimum,
        options["version"],
        options["source"],
        options["policy"],
        options["mirror"],
        options["epel_mirror"],
        options["hold"],
    )


def _refused(found: Plan, state: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """Return why a reboot that is needed must not be made, None where it may or none is needed."""
    if not found.reboot:
        return None
    mark = state["contents"].get(MARK) or ""
    here = BOOT_ID.read_text(encoding="ascii").strip() if BOOT_ID.exists() else ""
    return no_reboot(found.reboot, options["reboot_allowed"], state["boot"], here, mark, STACK)


def _result(found: Plan, host: Host, hardware: Hardware, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan as tasks carry it out: what the host has already is left out."""
    files = [file for file in found.files if state["contents"].get(file.path) != file.content]
    services = [name for name in found.services if state["services"].get(name) != "active"]
    hold = [name for name in found.hold if name in host.packages and name not in host.holds]
    steps = {
        "remove_first": list(found.remove_first),
        "repositories": [
            {"key": repository.key.url, "key_path": repository.key.path, **vars(repository.file(host.manager))}
            for repository in found.repositories
        ],
        "prepare": [list(command.argv) for command in found.prepare],
        "packages": [package.spec(host.manager) for package in found.packages],
        "remove": list(found.remove),
        "files": [vars(file) for file in files],
        "finish": [list(command.argv) for command in found.finish],
        # What needs a reboot first cannot start yet.
        "services": [] if found.reboot else services,
        "hold": hold,
        "reboot": list(found.reboot),
    }
    return {
        "manager": host.manager,
        "plan": steps,
        "changes": any(steps.values()),
        "mark": {"path": MARK, "content": boot_mark(state["boot"], found.reboot)},
        "fabric": hardware.fabric or "none",
        "driver": state["driver"],
        "warnings": [*found.notes],
    }
