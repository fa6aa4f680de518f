# SPDX-License-Identifier: GPL-3.0-or-later
"""What the instances of a host serve with now, and which states are kept of them."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..vllm.plan_document import PlanDocument
from .host import Slots
from .installed_host import Host, turn_of
from .restore_host import CommandResult, Engine, Service, stale
from .state import SlotState, summarize_plan, utc

UNKNOWN: dict[str, Any] = {"plan": {}, "record": {}, "kept_at": ""}


def status_of_host(
    run: Callable[..., CommandResult], root: str, plans: Mapping[str, PlanDocument], keep: int
) -> dict[str, Any]:
    """Return ``instances``, ``stale_instances`` and ``turn``, as the module instance_slot documents them."""
    engine = Engine(run)
    host = Host(root, engine.image_id)
    found = {
        name: status_of(host, name, Slots(host, name), Service(name, run), engine, plans.get(name), keep)
        for name in host.names()
    }
    stale_ones = [name for name, status in found.items() if status["stale"]]
    return {"instances": found, "stale_instances": stale_ones, "turn": turn_of(host)}


def status_of(
    host: Host, name: str, slots: Slots, service: Service, engine: Engine, plan: PlanDocument | None, keep: int
) -> dict[str, Any]:
    """Return the installed and the kept states of an instance, as the module instance_slot documents them."""
    installed, state, started = host.is_installed(name), host.state(name), service.started
    kept = {
        digest: {**(slot.as_dict() if slot else {"digest": digest, **UNKNOWN}), "damage": damage}
        for digest, slot, damage in slots.all()
    }
    return {
        "installed": installed,
        "digest": state.digest if installed else "",
        "missing": host.missing(name, state) if installed else [],
        "good": _without_damage(kept.get(slots.good)),
        "previous": _without_damage(kept.get(slots.previous)),
        "slots": list(kept.values()),
        "up": service.is_up,
        "enabled": service.is_enabled,
        "kept": installed and _is_kept(slots, state, plan, keep),
        "running_since": "" if started is None else utc(started),
        "needs_reload": installed and service.needs_reload,
        "stale": installed and stale(host, slots, state, service, engine),
        "group": host.group(name) if installed else {},
    }


def _is_kept(slots: Slots, state: SlotState, plan: PlanDocument | None, keep: int) -> bool:
    """Return whether keeping the installed state with its plan would change nothing."""
    if not plan:
        return False
    return not slots.would_change(state, summarize_plan(plan), None, keep)


def _without_damage(slot: dict[str, Any] | None) -> dict[str, Any] | None:
    return {key: value for key, value in slot.items() if key != "damage"} if slot else None
