# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from ..module_utils.common.processes_host import boot_id, started_at
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.tables import hosts_in_words
from ..plugin_utils.rollout.journal import JOURNAL, JournalError, JournalState, append, read, shorten, state_of
from ..plugin_utils.rollout.waves import verdict

# Registered on localhost by the play that decides. It is not templated, because it is as large as the fleet.
PLAN = "rollout_plan"
# The detail of a host that cannot be reached begins with this.
UNREACHABLE = "the host cannot be reached"
# The steps of an update in which nothing on the host has changed yet.
BEFORE_CHANGES = ("drain", "idle", "measure")


class ActionModule(ControllerAction):
    """Keeps the journal of a rollout on the controller."""

    ERRORS = (JournalError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, rollout = variables["inventory_hostname"], variables["hostvars"].raw_get("localhost")[PLAN]
        path = os.path.join(rollout["directory"], rollout["id"], JOURNAL)
        found: dict[str, Any] = {}
        try:
            if options["state"] == "begun":
                _begin(path, rollout)
            for event in _events(host, options):
                append(path, event)
            if options["state"] in _WAYS:
                found = _WAYS[options["state"]](path, rollout, options)
        except OSError as exc:
            where = exc.filename or path
            raise JournalError(f"{where}: {exc.strerror}; the journal of the rollout is kept there") from exc
        return {
            "journal": path,
            "turn": rollout["hosts"].get(host, {}),
            "mark": {key: rollout.get(key) for key in ("id", "kind", "user", "controller")},
            "detail": _detail(options),
            "short": shorten(_detail(options)),
            "baselines": _baselines(options["slots"], options["measured"]),
            "figures": {entry["item"]: entry["figures"] for entry in options["gates"] if entry.get("figures")},
            **found,
        }


def _events(host: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a host: the counters of gateways, the figures of gates, the step that begins."""
    events: list[dict[str, Any]] = [
        {
            "event": "gateway",
            "gateway": entry["item"],
            **{key: entry[key] for key in ("started", "frontends", "address_arrivals") if key in entry},
        }
        for entry in options["gateways"]
        if "frontends" in entry
    ]
    for entry in options["gates"]:
        if "verdicts" in entry:
            name = entry["item"]
            figures = {"before": options["baselines"].get(name) or None, "after": entry.get("figures") or None}
            gate = {"event": "gate", "host": host, "instance": name, "verdicts": entry["verdicts"]}
            events.append({**gate, **figures})
    if options["step"]:
        states = {entry["item"]["key"]: entry["digest"] for entry in options["kept"] if entry.get("digest")}
        step = {"event": "step", "host": host, "step": options["step"], "detail": _detail(options)}
        events.append({**step, "states": states} if states else step)
    return events


def _detail(options: Mapping[str, Any]) -> str:
    return " ".join(filter(None, [options["detail"], what_failed(options["failed"])]))


def _baselines(
    slots: Mapping[str, Mapping[str, Any]], measured: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the earlier figures of each instance: measured at the beginning of the update, else the kept ones."""
    fresh = {entry["item"]: entry.get("figures") or {} for entry in measured if "item" in entry}
    kept = {name: (slot.get("good") or {}).get("record") or {} for name, slot in slots.items()}
    return {name: fresh.get(name) or record for name, record in kept.items()}


def what_failed(result: Any) -> str:
    """Return the message of a failed task; for a loop, the messages of the items that failed."""
    if not isinstance(result, dict):
        return str(result or "")
    items = [entry for entry in result.get("results") or [] if isinstance(entry, dict) and entry.get("failed")]
    if items:
        return "; ".join(dict.fromkeys(what_failed(entry) for entry in items))
    return str(result.get("msg") or _what_is_down(result))


def _what_is_down(result: Mapping[str, Any]) -> str:
    """Return the servers that a gateway does not find up; gateway_server itself does not treat this as an error."""
    down = [
        f"{name} ({entry.get('why') or entry['state']})"
        for name, entry in (result.get("servers") or {}).items()
        if not (entry["up"] and entry["state"] == "ready")
    ]
    return f"not in service at the gateway {result.get('item')}: {', '.join(down)}" if down else ""


def _begin(path: str, rollout: Mapping[str, Any]) -> None:
    """Create the journal, and close those of the rollouts that this one continues."""
    os.makedirs(os.path.dirname(path), mode=0o700)
    # The worker's parent is ansible-playbook itself.
    process = {"pid": os.getppid(), "pid_started": started_at(os.getppid()), "boot": boot_id()}
    for event in rollout["events"]:
        append(path, {**event, **process} if event["event"] == "begun" else event)
    for earlier in rollout["resumes"]:
        append(os.path.join(rollout["directory"], earlier, JOURNAL), {"event": "ended", "result": "interrupted"})


def _waving(path: str, _rollout: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    append(path, {"event": "wave", "wave": options["wave"], "state": "begun"})
    return {}


def _wave(path: str, rollout: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Close a wave: a host whose update never ended cannot be reached. Returns why the rollout stops, if it does."""
    number = options["wave"]
    hosts = [host for names in rollout["waves"][number]["hosts"].values() for host in names]
    state = state_of(read(path))
    for host in hosts:
        if host in state.unfinished() or host in state.untouched():
            turn = rollout["hosts"].get(host, {})
            append(path, _unreachable(host, state.steps.get(host, ""), turn, options["gateways"]))
    state = state_of(read(path))
    failed = state.failed()
    append(
        path, {"event": "wave", "wave": number, "state": "ended", "failed": [host for host in hosts if host in failed]}
    )
    units = {host: turn["members"][0] for host, turn in rollout["hosts"].items()}
    reason = verdict(rollout["waves"], number, failed, rollout["limits"], units)
    last = number == len(rollout["waves"]) - 1
    if reason:
        append(path, {"event": "stopped", "reason": reason})
    return {"stop": reason if not last else "", "lost": sorted(failed)}


def _unreachable(host: str, at: str, turn: Mapping[str, Any], gateways: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last step of a host that has been unreachable since the step ``at``, as its gateways see it."""
    seen = {entry["item"]: entry["servers"] for entry in gateways if "servers" in entry}
    sending = [
        name
        for name in turn.get("gateways", ())
        if any(_serves(seen.get(name, {}).get(server)) for server in turn.get("servers", ()))
    ]
    detail = UNREACHABLE + (f" since the step {at}" if at else "")
    if sending:
        detail += f"; it is in service at {', '.join(sending)}"
    elif at:
        detail += "; it is out of service"
    unchanged = not at or (bool(sending) and at in BEFORE_CHANGES)
    return {"event": "step", "host": host, "step": "failed" if unchanged else "out", "detail": detail}


def _serves(server: Mapping[str, Any] | None) -> bool:
    return bool(server and server["up"] and server["state"] == "ready")


def _label(step: str, detail: str) -> str:
    """Return how the update of a host ended, for the message."""
    if detail.startswith(UNREACHABLE) and (step != "out" or "; it is in service at " in detail):
        return "unreachable"
    ends = {
        "rolled_back": "restored to its earlier state",
        "failed": "as it was",
        "skipped": "skipped, as it was",
        "out": "OUT OF SERVICE",
    }
    return ends[step]


def _end(path: str, _rollout: Mapping[str, Any], _options: Mapping[str, Any]) -> dict[str, Any]:
    """Close the journal; return the result and its message."""
    state = state_of(read(path))
    failed = state.failed()
    result = "stopped" if state.stopped else "failed" if failed else "done"
    append(path, {"event": "ended", "result": result})
    return {"result": result, "message": _message(state, result)}


def _message(state: JournalState, result: str) -> str:
    """Return the result in words, and what to do if anything."""
    done = [host for host, step in state.steps.items() if step == "done"]
    lines = [f"{len(done)} of {len(state.clusters)} hosts are done"]
    if state.stopped:
        lines.append(f"stopped: {state.stopped}")
    for host in state.failed():
        lines.append(f"{host}: {_label(state.steps[host], state.details[host])}: {shorten(state.details[host])}")
    if state.untouched():
        lines.append(f"not begun: {hosts_in_words(state.untouched())}")
    if result != "done":
        lines.append("Correct what failed and run the playbook again: hosts that are done stay unchanged")
    return "\n".join(lines)


def _stop(path: str, _rollout: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Note that the rollout ends here, and why."""
    reason = _detail(options)
    append(path, {"event": "stopped", "reason": reason})
    return {"stop": reason}


_WAYS = {"waving": _waving, "waved": _wave, "stopped": _stop, "ended": _end}
