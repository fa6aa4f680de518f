# SPDX-License-Identifier: GPL-3.0-or-later
"""What a journal of a rollout records of a host, from the results of its tasks; and the words for how a host ended."""

from typing import Any, Mapping, Sequence

from ..common.tables import hosts_in_words
from .journal import JournalState, shorten

# The detail of a host that cannot be reached begins with this.
UNREACHABLE = "the host cannot be reached"
# The steps of an update in which nothing on the host has changed yet.
BEFORE_CHANGES = ("drain", "idle", "measure")


def events_of(host: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
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
        step = {"event": "step", "host": host, "step": options["step"], "detail": detail_of(options)}
        events.append({**step, "states": states} if states else step)
    return events


def detail_of(options: Mapping[str, Any]) -> str:
    return " ".join(filter(None, [options["detail"], what_failed(options["failed"])]))


def baselines_of(
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


def last_step(host: str, at: str, turn: Mapping[str, Any], gateways: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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


def label_of(step: str, detail: str) -> str:
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


def message_of(state: JournalState, result: str) -> str:
    """Return the result in words, and what to do if anything."""
    done = [host for host, step in state.steps.items() if step == "done"]
    lines = [f"{len(done)} of {len(state.clusters)} hosts are done"]
    if state.stopped:
        lines.append(f"stopped: {state.stopped}")
    for host in state.failed():
        lines.append(f"{host}: {label_of(state.steps[host], state.details[host])}: {shorten(state.details[host])}")
    if state.untouched():
        lines.append(f"not begun: {hosts_in_words(state.untouched())}")
    if result != "done":
        lines.append("Correct what failed and run the playbook again: hosts that are done stay unchanged")
    return "\n".join(lines)
