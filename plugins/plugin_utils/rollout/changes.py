# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout or a rollback would change on a host."""

import re
from typing import Any, Dict, Mapping, Sequence

from ...module_utils.slots.state import GOOD, PREVIOUS, SHOWN, summarize_plan
from ...module_utils.vllm.plan_document import PlanDocument

Plans = Mapping[str, PlanDocument]
Slots = Mapping[str, Mapping[str, Any]]
Changes = Dict[str, Dict[str, Any]]


def changes_of(plans: Plans, slots: Slots, files: Mapping[str, Sequence[str]]) -> Changes:
    """Return the effects of applying ``plans``: by instance ``before``, ``after``, ``args``, ``env`` and ``files``.

    ``files`` lists the files to write, by instance; an instance without an entry changes only where it runs with old
    files.
    """
    found = {}
    for name, plan in plans.items():
        slot = slots.get(name) or {}
        if not files.get(name) and not slot.get("stale"):
            continue
        before = (slot.get(GOOD) or {}).get("plan")
        found[name] = _change(before, summarize_plan(plan), files.get(name) or [])
    return found


def spanning(plans: Plans, slots: Slots) -> dict[str, dict[str, Any]]:
    """Return the instances that span several hosts: stopping one of their hosts stops the whole instance.

    Each has its ``hosts``, planned and installed ones, and the ``role`` of this host. A rollback has no plans; there
    counts what is installed.
    """
    found: dict[str, dict[str, Any]] = {}
    planned = {name: plan["group"] for name, plan in plans.items() if plan.get("group")}
    installed = {name: slot["group"] for name, slot in slots.items() if slot.get("group", {}).get("hosts")}
    for name, group in (*planned.items(), *installed.items()):
        entry = found.setdefault(name, {"hosts": [], "role": group.get("role", "")})
        entry["hosts"] += [host for host in group["hosts"] if host not in entry["hosts"]]
    return found


def returns_of(slots: Slots, in_turn: bool = False) -> tuple[Changes, list[str]]:
    """Return the effects of a rollback, in the form of changes_of, and why instances cannot be rolled back.

    An installed state that was never found good goes back to the last good state; a good one goes back to the good
    state before it. ``in_turn``: a rollout was interrupted while it updated this host, so the good state is the old.
    """
    found, problems = {}, []
    for name, slot in slots.items():
        good, installed = slot.get(GOOD), slot.get("digest")
        passed = good is not None and installed == good["digest"]
        target = slot.get(PREVIOUS) if passed and not in_turn else good
        if not target:
            problems.append(f"{name}: nothing to go back to: no earlier state of it was kept on this host")
        elif target["digest"] != installed or (in_turn and not _is_up(slot)):
            found[name] = _return(slot, target)
    return found, problems


def undone_of(
    slots: Slots, undone: Mapping[str, Mapping[str, str]], in_turn: bool = False, half_back: bool = False
) -> tuple[Changes, list[str]]:
    """Return the effects of undoing a rollout, in the form of returns_of.

    ``undone`` has by instance the state ``before`` the rollout and the state ``after`` it, empty where the update of
    the host did not finish. A state that is already restored stays unchanged. A state that changed since is a problem,
    except on a host where a rollback was interrupted (``half_back``).
    """
    found, problems = {}, []
    for name, states in undone.items():
        slot = slots.get(name) or {}
        installed, kept = slot.get("digest"), {entry["digest"]: entry for entry in slot.get("slots") or []}
        before, after = states["before"], states["after"]
        if installed == before and (_is_up(slot) or not in_turn):
            continue
        if before not in kept:
            problems.append(f"{name}: nothing to go back to: the state before that rollout is not kept on this host")
        elif after and installed not in (before, after) and not half_back:
            problems.append(
                f"{name}: it was changed since that rollout; to go back one state, name the host with target_hosts "
                "and leave rollout_undo out"
            )
        else:
            found[name] = _return(slot, kept[before])
    return found, problems


def measurable(slots: Slots, in_turn: bool) -> tuple[list[str], list[str]]:
    """Return the running instances in a good state or without any kept state, and the latter alone.

    Instances that an interrupted update left running are in neither list, because their state is not proven good.
    """
    up = {name: slot for name, slot in slots.items() if _is_up(slot)}
    unkept = [] if in_turn else [name for name, slot in up.items() if not slot.get(GOOD)]
    good = [name for name, slot in up.items() if (slot.get(GOOD) or {}).get("digest", "") == slot.get("digest")]
    return [name for name in up if name in good or name in unkept], unkept


def to_measure(instances: Sequence[str], slots: Slots, baseline: str) -> list[str]:
    """Return the instances to measure before their change.

    With the ``baseline`` ``now`` all of them, with ``record`` those without figures of an earlier gate.
    """
    return [name for name in instances if baseline == "now" or not (slots[name].get(GOOD) or {}).get("record")]


def states_before(slots: Slots) -> dict[str, str]:
    """Return by instance the state that an undo restores."""
    found = {name: (slot.get(GOOD) or slot).get("digest") for name, slot in slots.items()}
    return {name: digest for name, digest in found.items() if digest}


def in_inventory(slots: Slots, instances: Mapping[str, Any]) -> Slots:
    """Return the instances of a host that its inventory names, with their replicas; all of them where it names none."""
    return {
        name: slot
        for name, slot in slots.items()
        if not instances or name in instances or re.sub(r"-[0-9]+\Z", "", name) in instances
    }


def _is_up(slot: Mapping[str, Any]) -> bool:
    return bool(slot.get("up")) and not slot.get("stale")


def _return(slot: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    change = _change((slot.get(GOOD) or {}).get("plan"), target.get("plan") or {}, [])
    return {**change, "to": target["digest"]}


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any], files: Sequence[str]) -> dict[str, Any]:
    return {
        "before": {key: before.get(key) for key in SHOWN} if before else None,
        "after": {key: after.get(key) for key in SHOWN},
        "args": _differences((before or {}).get("args"), after.get("args")) if before else {},
        "env": _differences((before or {}).get("env"), after.get("env")) if before else {},
        "files": sorted(files),
    }


def _differences(before: Any, after: Any) -> dict[str, list[Any]]:
    """Return the keys that differ, each with its old and its new value."""
    old, new = before or {}, after or {}
    return {key: [old.get(key), new.get(key)] for key in sorted({*old, *new}) if old.get(key) != new.get(key)}


def describe_changes(changes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the changes in one line; equal changes give equal texts, so that reports can group the hosts."""
    return "; ".join(f"{name}: {_describe_change(change)}" for name, change in changes.items())


def _describe_change(change: Mapping[str, Any]) -> str:
    before, after = change.get("before"), change["after"]
    if before is None:
        return f"{after.get('model')} by release {after.get('release')}" + (
            " (what ran before is not known)" if change.get("files") else ""
        )
    pairs = [(key, before.get(key), after.get(key)) for key in SHOWN if before.get(key) != after.get(key)]
    texts = [f"{key} {_short(old)} -> {_short(new)}" for key, old, new in pairs]
    for kind in ("args", "env"):
        texts += [f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in (change.get(kind) or {}).items()]
    # The plan is the same and other files differ: the user, a limit of the unit, a secret.
    return ", ".join(texts) or f"{', '.join(change.get('files') or []) or 'started again'}"


def _short(value: Any) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
