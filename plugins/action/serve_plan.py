# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils._options import OptionTableError
from ansible_collections.baremetal.inference.plugins.module_utils._plan import (
    Accelerator,
    PlanError,
    ServePlan,
    Site,
    check_instance,
    check_memory,
    check_ports,
    plan,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils._option_tables import (
    load_foreign,
    load_table,
    other_tables,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils._serving import (
    find,
    load_recipe,
    load_release,
    read,
)

SITE = {
    "weights_root": {"type": "path", "required": True},
    "encodings_dir": {"type": "path", "required": True},
    "cache_root": {"type": "path", "required": True},
    "venv_root": {"type": "path", "required": True},
    "drain_timeout": {"type": "int", "required": True},
}
PATHS = {"type": "list", "elements": "path", "default": []}
ARGUMENT_SPEC = {
    "instances": {"type": "dict", "required": True},
    "release": {"type": "str", "required": True},
    "accelerator": {"type": "dict", "required": True},
    "site": {"type": "dict", "required": True, "options": SITE},
    "recipe_path": PATHS,
    "release_path": PATHS,
    "weights_manifest_path": PATHS,
}


class ActionModule(ActionBase):
    """Plans the instances of a host on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        host = (task_vars or {}).get("inventory_hostname", "")
        try:
            plans = plan_host(host, options)
        except PlanError as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        venvs = {entry["venv"]["path"]: entry["venv"] for entry in plans.values() if entry["venv"]}
        models = sorted({entry["model"] for entry in plans.values()})
        return {
            **result,
            "changed": False,
            "asked": options["instances"],
            "plans": plans,
            "models": models,
            "venvs": list(venvs.values()),
        }


def plan_host(host: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plans of one host as plain data, by instance name. Raises PlanError."""
    instances = options["instances"]
    for name, wishes in instances.items():
        check_instance(name, wishes)
    check_ports(instances)
    detected = options["accelerator"]
    accelerator = Accelerator(**{key: detected[key] for key in Accelerator.__dataclass_fields__})
    release = load_release(options["release"], options["release_path"])
    site = Site(release=options["release"], **options["site"])
    plans = []
    for name in sorted(instances):
        recipe = load_recipe(instances[name]["recipe"], options["recipe_path"])
        variant = (recipe.get("variants") or {}).get(instances[name].get("variant", "default")) or {}
        model = variant.get("model_id", recipe["model"]["model_id"])
        manifest = read(find("weights", model, (".yml", ".yaml"), options["weights_manifest_path"]))
        plans.append(plan(host, name, accelerator, recipe, release, manifest, instances[name], site))
    check_memory(plans, accelerator)
    for entry in plans:
        check_options(entry)
    return {entry.instance: entry.as_dict() for entry in plans}


def check_options(entry: ServePlan) -> None:
    """Raise PlanError for arguments that the plan's release would refuse and VLLM_* variables that it does not read."""
    own = [name for name in entry.env if name.startswith("VLLM_")]
    try:
        table, foreign = load_table(entry.vllm_version), load_foreign(entry.stack)
        if not (table.check_args(entry.config) or table.check_env(own, foreign)):
            return
        # Only an error needs to know in which other releases a name is right.
        others = other_tables(entry.vllm_version)
    except OptionTableError as exc:
        raise PlanError(str(exc)) from exc
    problems = [*table.check_args(entry.config, others), *table.check_env(own, foreign, others)]
    raise PlanError(f"vllm_instances.{entry.instance}: {'; '.join(problems)}")


def doubtful_variables(entry: Mapping[str, Any]) -> list[str]:
    """Return what is to be said of variables that are not vLLM's and that no library is known to read."""
    others = [name for name in entry["env"] if not name.startswith("VLLM_")]
    table, foreign = load_table(entry["vllm_version"]), load_foreign(entry["stack"])
    return [f"vllm_instances.{entry['instance']}.env: {problem}" for problem in table.check_env(others, foreign)]
