# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from ..module_utils.vllm.plan_document import PlanDocument

Result = Mapping[str, Any]


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


class FilterModule:
    """Filter of the instances that must be restarted."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"instance_restarts": instance_restarts}
