# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the journal of a rollout into one document: the changes of each host, durations, and requests served.

Incomplete events are reported as far as possible, because a report matters most after a failure.
"""

import json
import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

from .journal import DONE_STEPS, FAILED_STEPS

SCHEMA = 1
# In the order of an update; other steps follow these.
STEPS = ("drain", "idle", "measure", "driver", "apply", "gate", "ready", "watch", "restore")
ENDS = (*DONE_STEPS, *FAILED_STEPS)
# The states of a host: how its update ended, or that it has not ended or not begun.
STATES = (*ENDS, "unfinished", "untouched")
COUNTERS = ("requests", "ok", "client_errors", "server_errors", "denied")
# Larger times and counters are damage; an int may be too large for a float.
_LARGEST = 1e18
Event = Mapping[str, Any]


class ReportError(ValueError):
    """The events are not those of a rollout; the message is a clause."""


@dataclass
class _Session:
    """One run of a rollout: a rollout that was interrupted and continued has several."""

    begun: Event
    first: float
    last: float
    stopped: str = ""
    result: str = ""


@dataclass
class _Host:
    name: str
    cluster: str = ""
    wave: int | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    session: int = 0

    def state(self) -> str:
        if not self.steps:
            return "untouched"
        last = str(self.steps[-1]["step"])
        return last if last in ENDS else "unfinished"


def report(events: Iterable[Event], running: bool = False) -> dict[str, Any]:
    """Return the document of a journal's events; ``running``: whether its rollout still runs. Raises ReportError."""
    timed = [_finite(event) for event in events if _number(event.get("at")) is not None]
    sessions = _sessions(timed)
    first, last = sessions[0], sessions[-1]
    hosts = _hosts(timed, sessions)
    states = [host.state() for host in hosts]
    return {
        "schema": SCHEMA,
        "id": str(first.begun.get("id", "")),
        "kind": str(first.begun.get("kind", "")),
        "user": str(first.begun.get("user", "")),
        "controller": str(first.begun.get("controller", "")),
        "clusters": [str(name) for name in _list(first.begun.get("clusters"))],
        "summary": str(first.begun.get("summary", "")),
        "options": dict(_mapping(first.begun.get("options"))),
        "began": first.first,
        "ended": last.last if last.result else None,
        "last": last.last,
        "seconds": _seconds(sum(max(session.last - session.first, 0) for session in sessions)),
        "result": last.result or ("running" if running else "interrupted"),
        "reason": last.stopped,
        "sessions": [_session_row(session) for session in sessions],
        "totals": {"hosts": len(hosts), **{state: states.count(state) for state in STATES}},
        "waves": _waves(timed),
        "steps": _durations(hosts),
        "changes": _changes(hosts),
        "requests": {**_requests(timed), "address_moves": _address_moves(timed)},
        "gates": _gates(timed),
        "hosts": [_host_row(host) for host in hosts],
    }


def summary_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a document that a task returns: its size does not grow with the number of healthy hosts."""
    names = {state: [row["host"] for row in document["hosts"] if row["state"] == state] for state in STATES}
    bad = {row["host"]: row["detail"] for row in document["hosts"] if row["state"] in FAILED_STEPS}
    keys = ("id", "kind", "user", "clusters", "summary", "result", "reason", "began", "ended", "seconds", "totals")
    return {
        **{key: document[key] for key in keys},
        "requests": document["requests"]["total"],
        "steps": document["steps"],
        "failed": bad,
        "unfinished": names["unfinished"],
    }


def _sessions(events: Sequence[Event]) -> list[_Session]:
    sessions: list[_Session] = []
    for event in events:
        at = float(event["at"])
        if event.get("event") == "begun":
            sessions.append(_Session(event, at, at))
        if not sessions:
            continue
        session = sessions[-1]
        session.last = max(session.last, at)
        if event.get("event") == "stopped":
            session.stopped = str(event.get("reason", ""))
        elif event.get("event") == "ended":
            session.result = str(event.get("result") or "done")
    if not sessions:
        raise ReportError("no event marks the begin of a rollout")
    return sessions


def _session_row(session: _Session) -> dict[str, Any]:
    begun = session.begun
    return {
        "began": session.first,
        "last": session.last,
        "kind": str(begun.get("kind", "")),
        "user": str(begun.get("user", "")),
        "controller": str(begun.get("controller", "")),
        "result": session.result or "interrupted",
    }


def _hosts(events: Sequence[Event], sessions: Sequence[_Session]) -> list[_Host]:
    """Return the hosts in the planned order of the rollout."""
    hosts: dict[str, _Host] = {}
    number = -1
    for event in events:
        kind, name = event.get("event"), str(event.get("host", ""))
        if kind == "begun":
            number += 1
            _planned(hosts, event)
        elif kind == "host" and name:
            host = hosts.setdefault(name, _Host(name))
            host.cluster = str(event.get("cluster") or host.cluster)
            host.wave = event.get("wave") if host.wave is None and isinstance(event.get("wave"), int) else host.wave
            # A rollout that continues checks every host again, and finds nothing to change on a finished one.
            found = _changes_of(_mapping(event.get("changes")))
            host.changes = found or host.changes
        elif kind == "step" and name:
            _step(hosts.setdefault(name, _Host(name)), event, max(number, 0), sessions)
    for host in hosts.values():
        _close(host, sessions[host.session].last, True)
    return sorted(hosts.values(), key=lambda host: (host.wave is None, host.wave or 0))


def _planned(hosts: dict[str, _Host], begun: Event) -> None:
    """Add the hosts of the waves; a host stays in the first wave that it was planned in."""
    for wave, names in enumerate(_list(begun.get("waves"))):
        for name in _list(names):
            host = hosts.setdefault(str(name), _Host(str(name)))
            host.wave = wave if host.wave is None else host.wave


def _step(host: _Host, event: Event, session: int, sessions: Sequence[_Session]) -> None:
    """Add a step to a host; the previous step lasted until now, or until its run broke off."""
    at = float(event["at"])
    broke_off = host.session != session
    _close(host, sessions[host.session].last if broke_off else at, broke_off)
    host.session = session
    host.steps.append({"step": str(event.get("step", "")), "at": at, "detail": str(event.get("detail") or "")})


def _close(host: _Host, at: float, broke_off: bool) -> None:
    if not host.steps:
        return
    step = host.steps[-1]
    ends = step["step"] in ENDS
    step["seconds"] = 0.0 if ends else _seconds(max(at - step["at"], 0))
    if broke_off and not ends:
        step["broke_off"] = True


def _host_row(host: _Host) -> dict[str, Any]:
    state = host.state()
    # The step that ends the update, or the one before it, holds the reason of a failure.
    details = [step["detail"] for step in host.steps if step["detail"]]
    return {
        "host": host.name,
        "cluster": host.cluster,
        "wave": host.wave,
        "state": state,
        "detail": details[-1] if details and state in (*FAILED_STEPS, "unfinished") else "",
        "seconds": _seconds(sum(step["seconds"] for step in host.steps)),
        "changes": host.changes,
        "steps": host.steps,
    }


def _changes_of(changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of each instance: lines with the values before and after, and the files."""
    found = []
    for instance, change in sorted(changes.items()):
        change = _mapping(change)
        before, after = _mapping(change.get("before")), _mapping(change.get("after"))
        lines = [
            {"what": str(key), "before": before.get(key), "after": after.get(key)}
            for key in dict.fromkeys([*before, *after])
            if before.get(key) != after.get(key)
        ]
        for kind, dashes in (("args", "--"), ("env", "")):
            for key, values in sorted(_mapping(change.get(kind)).items()):
                old, new = values if isinstance(values, (list, tuple)) and len(values) == 2 else (None, values)
                lines.append({"what": f"{dashes}{key}", "before": old, "after": new})
        files = [str(path) for path in _list(change.get("files"))]
        found.append({"instance": str(instance), "lines": lines, "files": files})
    return found


def _changes(hosts: Sequence[_Host]) -> list[dict[str, Any]]:
    """Return each distinct change with its hosts; the change of the most hosts comes first."""
    groups: dict[str, dict[str, Any]] = {}
    for host in hosts:
        for change in host.changes:
            key = json.dumps(change, sort_keys=True, default=str)
            groups.setdefault(key, {**change, "hosts": []})["hosts"].append(host.name)
    return sorted(groups.values(), key=lambda change: (-len(change["hosts"]), change["instance"]))


def _waves(events: Sequence[Event]) -> list[dict[str, Any]]:
    waves: dict[int, dict[str, Any]] = {}
    for event in events:
        number = event.get("wave")
        if event.get("event") != "wave" or not isinstance(number, int):
            continue
        wave = waves.setdefault(number, {"wave": number, "began": event["at"], "ended": None, "failed": []})
        if event.get("state") == "ended":
            wave["ended"] = event["at"]
        wave["failed"] = [str(name) for name in _list(event.get("failed"))] or wave["failed"]
    return [waves[number] for number in sorted(waves)]


def _durations(hosts: Sequence[_Host]) -> dict[str, dict[str, Any]]:
    """Return the duration of each step, without steps that broke off."""
    taken: dict[str, list[tuple[float, str]]] = {}
    for host in hosts:
        for step in host.steps:
            if step["step"] not in ENDS and not step.get("broke_off"):
                taken.setdefault(step["step"], []).append((step["seconds"], host.name))
    ordered = sorted(taken, key=lambda name: (STEPS.index(name) if name in STEPS else len(STEPS), name))
    return {name: _spread(taken[name]) for name in ordered}


def _spread(taken: Sequence[tuple[float, str]]) -> dict[str, Any]:
    longest, host = max(taken)
    median = statistics.median(seconds for seconds, _host in taken)
    return {"count": len(taken), "median_s": _seconds(median), "max_s": longest, "max_host": host}


def _gates(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the findings of each instance's last run of the gates."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        if event.get("event") != "gate":
            continue
        host, instance = str(event.get("host", "")), str(event.get("instance", ""))
        verdicts = [
            {"name": str(row.get("name", "")), "ok": bool(row.get("ok")), "detail": str(row.get("detail") or "")}
            for row in map(_mapping, _list(event.get("verdicts")))
        ]
        found[host, instance] = {
            "host": host,
            "instance": instance,
            "at": event["at"],
            "before": dict(_mapping(event.get("before"))) or None,
            "after": dict(_mapping(event.get("after"))) or None,
            "verdicts": verdicts,
            "passed": all(verdict["ok"] for verdict in verdicts),
        }
    return list(found.values())


def _requests(events: Sequence[Event]) -> dict[str, Any]:
    """Return the requests that the gateways counted between their first reading and their last one.

    ``open`` are those without an answer at the last reading: they still ran, or their clients had left.

    HAProxy counts from zero after a start. Requests between the last reading and a restart are missing, so with
    ``restarts`` the sums are lower bounds.
    """
    before: dict[str, tuple[str, dict[str, dict[str, float]]]] = {}
    services: dict[str, dict[str, float]] = {}
    gateways: dict[str, dict[str, float]] = {}
    restarts = 0
    for event in events:
        if event.get("event") != "gateway":
            continue
        gateway, started = str(event.get("gateway", "")), str(event.get("started", ""))
        now = {str(name): _counters(values) for name, values in _mapping(event.get("frontends")).items()}
        if gateway in before:
            earlier_started, earlier = before[gateway]
            again = earlier_started != started or _dropped(earlier, now)
            restarts += again
            for service, counters in now.items():
                old = {} if again else earlier.get(service, {})
                for key, value in counters.items():
                    more = int(value - old.get(key, 0))
                    for table, name in ((services, service), (gateways, gateway)):
                        table.setdefault(name, dict.fromkeys(COUNTERS, 0))[key] += more
        else:
            gateways[gateway] = dict.fromkeys(COUNTERS, 0)
        before[gateway] = (started, now)
    total = {key: sum(sums[key] for sums in gateways.values()) for key in COUNTERS}
    for sums in (*services.values(), *gateways.values(), total):
        # A request counts when it arrives, its answer when it ends.
        sums["open"] = max(0, sums["requests"] - sums["ok"] - sums["client_errors"] - sums["server_errors"])
    return {"total": total, "services": services, "gateways": gateways, "restarts": restarts}


def _dropped(old: Mapping[str, Mapping[str, float]], now: Mapping[str, Mapping[str, float]]) -> bool:
    return any(now[service][key] < value for service in old if service in now for key, value in old[service].items())


def _counters(values: Any) -> dict[str, float]:
    return {key: _number(_mapping(values).get(key)) or 0 for key in COUNTERS}


def _number(value: Any) -> float | None:
    """Return the value where it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_LARGEST < value < _LARGEST:
        return None
    return value


def _address_moves(events: Sequence[Event]) -> int:
    """Return how often the shared addresses came to a gateway between its first reading and its last one."""
    found: dict[str, list[float]] = {}
    for event in events:
        arrivals = _number(event.get("address_arrivals"))
        if event.get("event") == "gateway" and arrivals is not None:
            found.setdefault(str(event.get("gateway", "")), []).append(arrivals)
    return sum(max(0, int(counts[-1] - counts[0])) for counts in found.values())


def _finite(value: Any) -> Any:
    """Return the value without numbers that JSON cannot express, though Python reads and writes them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _seconds(value: float) -> float:
    return round(value, 3)
