# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import re
from typing import Any, Callable, Iterable, Mapping

from ..module_utils.containers.program_command import program_run
from ..module_utils.containers.run_command import (
    command_of,
    container_name,
    container_settings,
    owner_of,
    quadlet_lines,
    run_words,
)
from ..module_utils.slots.state import GOOD
from ..module_utils.vllm.plan_document import PlanDocument
from ..plugin_utils.fleet.instance_files import instance_entries, instance_files
from ..plugin_utils.fleet.verify_document import answers_table

Result = Mapping[str, Any]

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


def instance_checks(instances: Mapping[str, Mapping[str, Any]] | None, name: str) -> list[str]:
    """Return the checks that an entry of vllm_instances requests, empty where the model decides.

    ``name`` may be that of a replica: those of chat are chat-2, chat-3 and so on.
    """
    entries = instances or {}
    found = entries.get(name) or entries.get(re.sub(r"-\d+\Z", "", name)) or {}
    return list(found.get("checks") or [])


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


class FilterModule:
    """Filters of the instances of a host: their files, containers, restarts and kept states."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        named = (
            all_reduce_run,
            answers_table,
            busy_instances,
            container_run,
            container_settings,
            instance_checks,
            instance_entries,
            instance_files,
            instance_restarts,
            instance_restores,
        )
        return {each.__name__: each for each in named}
