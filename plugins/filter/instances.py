# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterable, Mapping

from ansible.errors import AnsibleFilterError

from ..module_utils.common.kinds import name_kind
from ..module_utils.containers.program_command import program_run
from ..module_utils.containers.run_command import (
    command_of,
    container_name,
    container_settings,
    owner_of,
    quadlet_lines,
    run_words,
)
from ..module_utils.instance.marks import CONFIG_DIR
from ..module_utils.slots.state import GOOD
from ..module_utils.vllm import files as _files
from ..module_utils.vllm.plan_document import PlanDocument
from ..plugin_utils.common.host_library import MIDDLEWARE, program_files
from ..plugin_utils.fleet import explain as _explain
from ..plugin_utils.options.arguments import env_line
from ..plugin_utils.planning.instances import secret_problem

Result = Mapping[str, Any]

# They wait in the unit until vLLM answers, and take an instance out of service before a stop.
PROGRAMS = ("vllm-wait-ready", "vllm-drain")
# Only where an instance spans hosts, where some share chips, and where weights stay on them.
GROUP_PROGRAMS = ("vllm-group", "vllm-router")
RESIDENT_PROGRAMS = ("vllm-residents",)
PRELOAD_PROGRAMS = ("vllm-preload",)
# So that NCCL's log has how it gets to the other hosts.
LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}


def all_reduce_run(plan: PlanDocument, settings: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the options of M(group_all_reduce) for one instance of this host, but for the program."""
    group = plan["group"]
    logged = {**plan, "env": {**plan["env"], **(LOG if plan["stack"] in ("cuda", "rocm") else {})}}
    arguments = {
        "stack": plan["stack"],
        "hosts": group["hosts"],
        "rank": group["rank"],
        "chips": 1 if plan["stack"] == "cpu" else max(1, len(plan["chips"])),
        "head": group["head_address"],
        "port": group["port"],
        "seconds": float(seconds),
    }
    return {**program_run(logged, settings), "arguments": arguments}  # type: ignore[arg-type]


def busy_instances(waited: Mapping[str, Any] | None) -> list[str]:
    """Return the instances that were still busy when a loop of instance_idle ended; none if the loop did not run.

    An instance that could not be asked is not among them, because its task failed.
    """
    results = (waited or {}).get("results") or []
    return [entry["item"] for entry in results if "idle" in entry and not entry["idle"]]


def container_run(plan: PlanDocument, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the templates of a container's unit write."""
    return {
        "command": command_of(settings),
        "name": container_name(plan["instance"]),
        "owner": owner_of(plan["container"] or {}, settings),
        "words": run_words(plan, settings),
        "quadlet": quadlet_lines(plan, settings),
    }


def env_lines(variables: Mapping[str, Any], literal: bool = False) -> list[str]:
    """Return the lines of a file of variables, sorted by name: for systemd and shells, or literal for engines."""
    try:
        return [env_line(name, str(variables[name]), literal) for name in sorted(variables)]
    except ValueError as exc:
        raise AnsibleFilterError(str(exc)) from exc


def instance_checks(instances: Mapping[str, Mapping[str, Any]] | None, name: str) -> list[str]:
    """Return the checks that an entry of vllm_instances requests, empty where the model decides.

    ``name`` may be that of a replica: those of chat are chat-2, chat-3 and so on.
    """
    entries = instances or {}
    found = entries.get(name) or entries.get(re.sub(r"-\d+\Z", "", name)) or {}
    return list(found.get("checks") or [])


def instance_files(plans: Mapping[str, PlanDocument], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files of all instances of a host in the order in which they are written; a shared file is listed once.

    ``key`` and ``value`` are an instance's name and plan, as the templates expect. ``restarts`` names the instances
    that a change of the file concerns.
    """
    found: dict[str, dict[str, Any]] = {}
    files = {name: _files.instance_files(plan, settings) for name, plan in plans.items()}
    longest = _files.longest_start(entry for entries in files.values() for entry in entries)
    for name, entries in files.items():
        for entry in entries:
            if entry["shared"] and "start_seconds" in entry:
                entry = {**entry, "start_seconds": longest}
            entry = found.setdefault(entry["path"], {**entry, "key": name, "value": plans[name], "restarts": []})
            entry["restarts"].append(name)
    # The shared unit comes last, when everything that it starts is in place.
    return sorted(found.values(), key=lambda entry: entry["shared"])


def instance_entries(plans: Mapping[str, PlanDocument], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what M(host_files) writes: the files of all instances with their directories and links."""
    files = instance_files(plans, settings)
    units = dict.fromkeys(os.path.dirname(entry["path"]) for entry in files if entry["unit"])
    found = [_files.directory(path) for path in (CONFIG_DIR, _files.LIBRARY, *units)]
    for name, plan in plans.items():
        found += [_files.directory(f"{_files.STATE_DIR}/{name}"), _files.weights_link(name, plan["weights"])]
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


def instance_restarts(
    plans: Mapping[str, PlanDocument],
    files: Iterable[Result] = (),
    images: Result | None = None,
    stale: Iterable[str] = (),
    units_only: bool = False,
    with_live: bool = False,
) -> list[str]:
    """Return the instances that do not run with what is installed now, each once.

    ``files`` are the results of tasks that wrote entries of ``instance_entries``, ``images`` is that of the task
    that pulled images. ``stale`` names instances that ran with older files before this run; those without a plan are
    left out. ``units_only`` leaves out the files that neither systemd nor podman reads. ``with_live`` counts files too
    whose change the running instance takes over.
    """
    items = [item for task in files for item in _changed_items(task, with_live) if item["unit"] or not units_only]
    found = [name for item in items for name in item["restarts"]]
    pulled = _changed_items(images)
    found += [plan["instance"] for plan in plans.values() if plan["container"] and plan["image"] in pulled]
    found += [name for name in stale if name in plans]
    return list(dict.fromkeys(found))


def _changed_items(task: Result | None, with_live: bool = True) -> list[Any]:
    """Return the items of a looped task that changed something; none of a task that did not run."""
    results = [entry for entry in (task or {}).get("results") or [] if entry.get("changed")]
    return [entry["item"] for entry in results if with_live or not entry.get("live")]


def instance_restores(
    slots: Mapping[str, Mapping[str, Any]], to: str = GOOD, states: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the state to restore for each instance: a digest, ``good`` or ``previous``.

    Every instance with a kept state is restored ``to`` it. With ``states``, only the instances named there are, each to
    its own state; an instance without a kept state that should return to ``good`` is not changed.
    """
    kept = [name for name, slot in slots.items() if slot.get(GOOD)]
    if states is None:
        return dict.fromkeys(kept, to)
    return {name: state for name, state in states.items() if state != GOOD or name in kept}


def plan_table(plans: Iterable[Mapping[str, Any]], width: int = _explain.WIDTH) -> str:
    """Return what each distinct plan sets, from which layer and why, as a table of text."""
    try:
        return _explain.plan_table(list(plans), width)
    except (KeyError, TypeError, AttributeError) as exc:
        raise AnsibleFilterError(f"plan_table: expected a list of plans as render.yml writes them: {exc!r}") from exc


def secret_names(secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the names of each instance's secrets with what is wrong with their values."""
    for instance, entries in secrets.items():
        if not isinstance(entries, Mapping):
            raise AnsibleFilterError(
                f"vllm_secrets.{instance}: found {name_kind(entries)}, expected a mapping of environment variables"
            )
    return {
        instance: {name: secret_problem(value) for name, value in entries.items()}
        for instance, entries in secrets.items()
    }


class FilterModule:
    """Filters of the instances of a host: their files, containers, restarts, kept states, secrets and plans."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        named = (
            all_reduce_run,
            busy_instances,
            container_run,
            container_settings,
            env_lines,
            instance_checks,
            instance_entries,
            instance_files,
            instance_restarts,
            instance_restores,
            plan_table,
            secret_names,
        )
        return {each.__name__: each for each in named}
