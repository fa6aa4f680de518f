# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import AcceleratorError
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.library import uses_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import find
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

SITE = {
    "weights_root": {"type": "path", "required": True},
    "encodings_dir": {"type": "path", "required": True},
    "cache_root": {"type": "path", "required": True},
    "venv_root": {"type": "path", "required": True},
    "drain_timeout": {"type": "int", "required": True},
}
PATHS = {"type": "list", "elements": "path", "default": []}
ARGUMENT_SPEC = {
    # Any type: a list in its place gets a sentence of its own.
    "instances": {"type": "raw", "required": True},
    "release": {"type": "str", "required": True},
    "runtime": {"type": "str", "choices": ["", "container", "venv"], "default": ""},
    "strict": {"type": "bool", "default": True},
    "accelerator": {"type": "dict", "required": True},
    "facts": {"type": "dict", "default": {}},
    "image": {"type": "str", "default": ""},
    "registry": {"type": "str", "default": ""},
    "secret_names": {"type": "dict", "default": {}},
    "site": {"type": "dict", "required": True, "options": SITE},
    "recipe_path": PATHS,
    "release_path": PATHS,
    "weights_manifest_path": PATHS,
    "accelerator_catalog_path": PATHS,
}
# Facts of a host that conditions of recipes ask about, where they are known.
FACTS = ("driver_version", "cuda_version", "mec_firmware")


class ActionModule(ActionBase):
    """Plans the instances of a host on the controller; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        host = (task_vars or {}).get("inventory_hostname", "")
        try:
            plans = plan_host(host, accelerator_of(options), settings_of(options))
            check_pinned(plans, options["weights_manifest_path"])
        except (AcceleratorError, PlanError) as exc:
            raise AnsibleActionFail(f"{host}: {exc}") from exc
        venvs = {entry["venv"]["path"]: entry["venv"] for entry in plans.values() if entry["venv"]}
        images = sorted({entry["image"] for entry in plans.values() if entry["image"]})
        warnings = dict.fromkeys(f"{host}: {text}" for entry in plans.values() for text in entry["warnings"])
        return {
            **result,
            "changed": False,
            "asked": options["instances"],
            "plans": plans,
            "models": sorted({model for entry in plans.values() for model in entry["models"]}),
            "venvs": list(venvs.values()),
            "images": images,
            "encodings": uses_of(plans),
            "warnings": list(warnings),
        }


def check_pinned(plans: Mapping[str, Mapping[str, Any]], directories: Sequence[str]) -> None:
    """Raise PlanError for weights that no manifest pins: they can be planned, but no host can fetch them."""
    for plan in plans.values():
        for model in plan["models"]:
            # Says where it looked, and the nearest name.
            find("weights", model, (".yml", ".yaml"), directories)


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's options as plans take them."""
    same = ("instances", "release", "runtime", "strict", "image", "registry")
    paths = ("recipe_path", "release_path", "weights_manifest_path")
    return {
        **{key: options[key] for key in (*same, *paths)},
        **options["site"],
        "secrets": options["secret_names"],
    }


def accelerator_of(options: Mapping[str, Any]) -> Accelerator:
    """Return the detected accelerators with what the catalogue and the host's facts know of them."""
    detected = options["accelerator"]
    known = {key: options["facts"].get(key, detected.get(key)) for key in FACTS}
    memory_mib = detected.get("memory_mib")
    return declared_accelerator(
        load_catalogue(options["accelerator_catalog_path"]),
        detected["model"],
        int(detected["count"]),
        None if memory_mib is None else memory_mib / 1024,
        known,
    )
