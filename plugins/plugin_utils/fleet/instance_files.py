# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the instances of a host, as the role vllm writes them with M(host_files)."""

import os
from typing import Any, Mapping

from ...module_utils.instance.marks import CONFIG_DIR, STATE_DIR
from ...module_utils.vllm import files as _files
from ...module_utils.vllm.plan_document import PlanDocument
from ..common.host_library import MIDDLEWARE, program_files

# They wait in the unit until vLLM answers, and take an instance out of service before a stop.
PROGRAMS = ("vllm-wait-ready", "vllm-drain")
# Only where an instance spans hosts, where some share chips, and where weights stay on them.
GROUP_PROGRAMS = ("vllm-group", "vllm-router")
RESIDENT_PROGRAMS = ("vllm-residents",)
PRELOAD_PROGRAMS = ("vllm-preload",)


def instance_files(plans: Mapping[str, PlanDocument], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of all instances of a host in the order in which they are written; a shared file is listed once.

    ``name`` and ``plan`` are those of an instance, as the templates expect. ``restarts`` names the instances that a
    change of the file concerns.
    """
    found: dict[str, dict[str, Any]] = {}
    files = {name: _files.instance_files(plan, settings) for name, plan in plans.items()}
    longest = _files.longest_start(entry for entries in files.values() for entry in entries)
    for name, entries in files.items():
        for entry in entries:
            if entry["shared"] and "start_seconds" in entry:
                entry = {**entry, "start_seconds": longest}
            entry = found.setdefault(entry["path"], {**entry, "name": name, "plan": plans[name], "restarts": []})
            entry["restarts"].append(name)
    # The shared unit comes last, when everything that it starts is in place.
    return sorted(found.values(), key=lambda entry: entry["shared"])


def instance_entries(plans: Mapping[str, PlanDocument], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what M(host_files) writes: the files of all instances with their directories and links."""
    files = instance_files(plans, settings)
    units = dict.fromkeys(os.path.dirname(entry["path"]) for entry in files if entry["unit"])
    found = [_files.directory(path) for path in (CONFIG_DIR, _files.LIBRARY, *units)]
    for name, plan in plans.items():
        found += [_files.directory(f"{STATE_DIR}/{name}"), _files.weights_link(name, plan["weights"])]
    grouped = any("group" in plan for plan in plans.values())
    inner = [os.path.dirname(entry["path"]) for entry in files if entry["template"] == "instance.metadata.j2"]
    found += [_files.directory(path) for top in inner for path in (os.path.dirname(top), top)]
    sharing = any("residents" in plan for plan in plans.values())
    names = [*PROGRAMS, *(GROUP_PROGRAMS if grouped else []), *(RESIDENT_PROGRAMS if sharing else [])]
    names += PRELOAD_PROGRAMS if any("preload" in plan for plan in plans.values()) else []
    programs = {
        entry["path"]: {**entry, "unit": False, "restarts": ()}
        for name in (*names, *MIDDLEWARE)
        for entry in program_files(name)
    }
    templates = {entry["path"]: entry for plan in plans.values() for entry in _files.chat_templates(plan)}
    return [*found, *programs.values(), *templates.values(), *files]
