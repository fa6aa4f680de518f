# SPDX-License-Identifier: GPL-3.0-or-later
"""Add to the lines of a fleet what its gateways report about the servers of each host."""

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any, Container, Iterable, Mapping, NamedTuple, Sequence

from ...module_utils.gateway.servers import REMOVED, owner_kind, server_prefix
from ...module_utils.gateway.state import READY
from ..common.answers import describe_silent
from ..common.output import problem_of
from ..common.tables import table
from .chips import DRAINED, SERVES, SICK, STATES
from .faults import Faults, last_fault
from .lines import Line, seconds_of
from .table import age

# Results of gateway_server by gateway; a gateway that was not read has no ``servers``.
Results = Mapping[str, Mapping[str, Any]]
# Results of endpoint by host, one for each of its instances; empty where no instance was asked.
Answers = Mapping[str, Mapping[str, Any]]
SERVICES = (
    *("service", "model", "release", "address", "in service", "running", "waiting", "tokens/s, this hour"),
    *("last fault", "last change"),
)
PLANNED = ("service", "model", "release", "hosts", "state", "last fault")
# Hosts of a row.
MOST_HOSTS = 4
# Lines of teams for each gateway.
MOST_TEAMS = 20
# Characters of the reason why an instance does not answer.
MOST_REASON = 200
# What to do about it; HOST and INSTANCE stand for names.
SEE_SICK = "run `inference logs HOST INSTANCE`"
SEE_HEALTH = "; on the host, `vllm-health status`"
SEE_ROLLOUT = "a rollout has it: wait for its end, or continue it with `inference rollout`"
SEE_REMOVED = "remove it from vllm_instances, then `inference apply gateways`; or install it: `inference apply HOST`"
SEE_DRAINED = "return it with `inference undrain HOST` when its work is done"


class Problem(NamedTuple):
    """A server that is out of service or sick: the state it gives its host, the reason, and what to do."""

    state: str
    text: str
    todo: str


def with_service(lines: Iterable[Line], results: Results) -> list[Line]:
    """Return the lines with the states sick, drained and serves where a gateway reports them.

    A host keeps a worse state that it has already, and has both reasons.
    """
    lines = list(lines)
    hosts = {server_prefix(line.host): line.host for line in lines}
    problems = _problems(results, hosts)
    well = {
        hosts.get(prefix_of(name, hosts))
        for result in results.values()
        for name, entry in result.get("servers", {}).items()
        if entry["up"] and entry["state"] == READY
    }
    well -= {*problems}
    return [
        replace(line, state=SERVES)
        if line.host in well and STATES.index(line.state) > STATES.index(SERVES)
        else _with_problems(line, problems.get(line.host, []))
        for line in lines
    ]


def services_table(
    results: Results,
    lines: Sequence[Line],
    addresses: Mapping[str, str],
    width: int,
    answers: Answers | None = None,
    faults: Faults | None = None,
) -> list[str]:
    """Return the table of what is served: where, by how many servers, since when, how fast; empty without services.

    ``addresses`` has the address of each gateway. Requests at several gateways are added up; each counts all tokens.
    A site without gateways has a table of what its inventory says, and how many of the instances answer.
    """
    if not results:
        rows = [
            _planned_row(name, lines, answers or {}, faults or {})
            for name in sorted({pair[0] for line in lines for pair in line.serves})
        ]
        return table(PLANNED, rows, width).splitlines()
    names = sorted({service for result in results.values() for service in result.get("backends", {})})
    rows = [_service_row(name, results, lines, addresses, faults or {}, time.time()) for name in names]
    return table(SERVICES, rows, width).splitlines()


def _planned_row(name: str, lines: Sequence[Line], answers: Answers, faults: Faults) -> list[str]:
    hosts = [line.host for line in lines if any(pair[0] == name for pair in line.serves)]
    more = f" and {len(hosts) - MOST_HOSTS:,} more" if len(hosts) > MOST_HOSTS else ""
    return [
        name,
        ", ".join(sorted({pair[1] for line in lines for pair in line.serves if pair[0] == name and pair[1]})),
        _releases(name, lines),
        f"{', '.join(hosts[:MOST_HOSTS])}{more}",
        _answering([answer_of(name, host, answers) for host in hosts]) if answers else "unknown: run verify.yml",
        last_fault(name, hosts, faults),
    ]


def answer_of(name: str, host: str, answers: Answers) -> Mapping[str, Any]:
    found = answers.get(host, {}).get("results", ())
    return next((each for each in found if each.get("item") == name), {})


def _answering(asked: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(each.get('ok') is True for each in asked):,} of {len(asked):,} answer"


def describe_answers(answers: Answers) -> list[str]:
    """Return a line for each instance that does not answer, and for each host whose answer cannot be read."""
    silent = [
        f"{host}, {each['item']}: {problem_of(each)[:MOST_REASON]}"
        for host, result in sorted(answers.items())
        for each in result.get("results", ())
        if each.get("ok") is not True
    ]
    return [*silent, *describe_silent({host: result for host, result in answers.items() if result}, "results")]


def _releases(name: str, lines: Sequence[Line]) -> str:
    return ", ".join(sorted({release for line in lines for each, release in line.planned if each == name and release}))


def _service_row(
    name: str, results: Results, lines: Sequence[Line], addresses: Mapping[str, str], faults: Faults, now: float
) -> list[str]:
    found = {gateway: result for gateway, result in results.items() if name in result.get("backends", {})}
    backends = [result["backends"][name] for result in found.values()]
    hosts = {server_prefix(line.host): line.host for line in lines}
    servers = [
        (seconds_in_state(entry, now), hosts.get(prefix_of(key, hosts), key.partition("--")[0]), entry)
        for result in found.values()
        for key, entry in result.get("servers", {}).items()
        if entry["backend"] == name
    ]
    models = sorted({pair[1] for line in lines for pair in line.serves if pair[0] == name and pair[1]})
    called = {each for line in lines for instance, names in line.answers if instance == name for each in names}
    rates = [max(result.get("tokens_per_s", {}).get(each, 0) for result in found.values()) for each in called]
    return [
        name,
        ", ".join(models),
        _releases(name, lines),
        ", ".join(addresses.get(gateway, gateway) for gateway in found),
        ", ".join(dict.fromkeys(f"{each['ready']:,} of {each['servers']:,}" for each in backends)),
        f"{sum(entry['sessions'] for _since, _host, entry in servers):,}",
        f"{sum(each['queued'] for each in backends) + sum(entry['queued'] for _since, _host, entry in servers):,}",
        f"{sum(rates):,.1f}" if any(rates) else "",
        last_fault(name, (host for _since, host, _entry in servers), faults),
        _last_change(servers, sum(_planned_stops(result, name) for result in found.values()), len(found)),
    ]


def seconds_in_state(entry: Mapping[str, Any], now: float) -> float:
    """Return how long a server has been drained, up or down, not since when its checks fail."""
    since = seconds_of(entry["since"]) if entry["state"] != READY and entry["owner"] else None
    return entry["changed_s"] if since is None else max(0.0, now - since)


def _planned_stops(result: Mapping[str, Any], service: str) -> int:
    """Return how often servers of a service went down because somebody asked for it, as a gateway counts it."""
    stops = result.get("planned_stops") or {}
    return sum(stops.get(name, 0) for name, entry in result.get("servers", {}).items() if entry["backend"] == service)


def _last_change(servers: Sequence[tuple[float, str, Mapping[str, Any]]], planned: int, gateways: int) -> str:
    """Return which server changed last; ``servers`` are the seconds since a change, host and entry of each.

    HAProxy counts the ``planned`` stops among those by a fault.
    """
    since, host, newest = min(servers, key=lambda each: each[0], default=(0.0, "", {}))
    if not newest:
        return ""
    state = "drained" if newest["state"] != READY else "up" if newest["up"] else f"down ({newest['why']})"
    # Each gateway has its own checks of the same servers.
    downs = max(0, sum(entry["downs"] for _since, _host, entry in servers) - planned) // gateways
    counts = [f"went down {_times(downs)}"] if downs else []
    # One of them may have seen a stop that another, which was starting, has not.
    counts += [f"stopped as planned {_times(-(-planned // gateways))}"] if planned else []
    return "; ".join([f"{host} {state} for {age(since)}", *counts])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def describe_services(results: Results) -> list[str]:
    """Return a line for each service's replicas and busiest teams, each gateway that was not read, and odd names."""
    scaled = [
        f"{service} has {_counted(found['replicas'])} replicas, {found['waiting']:,} requests wait; {found['mode']}, "
        f"{found['min']} to {found['max']}; last: {found['last'] or 'no change'} ({gateway} decides)"
        for gateway, result in results.items()
        for service, found in (result.get("scale") or {}).items()
    ]
    admitted = [
        f"{row['service']}, class {row['class']}, team {row['team'] or '-'}: {row['now']:,} run or wait at {gateway}; "
        f"of {row['requests']:,} {row['waited']:,} waited and {row['refused']:,} were refused; the class begins its "
        f"answers after {row['first_answer_s']:.2f} s"
        for gateway, result in results.items()
        for row in _busiest(result.get("admission") or [])
    ]
    odd = [
        f"{gateway} has a server {name[:MOST_REASON]}, expected names HOST--INSTANCE"
        for gateway, result in results.items()
        for name in result.get("servers", {})
        if "--" not in name
    ]
    return [*sorted(scaled), *sorted(admitted), *describe_silent(results, "servers"), *odd]


def _busiest(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the teams of a gateway with the most requests that run, wait or were refused."""
    return sorted(rows, key=lambda row: (-row["now"], -row["refused"], -row["requests"]))[:MOST_TEAMS]


def _counted(replicas: Mapping[str, int]) -> str:
    """Return how many replicas are in each state, such as ``1 serving, 2 stopped``."""
    return ", ".join(f"{count:,} {state}" for state, count in replicas.items() if count) or "no"


def _problems(results: Results, hosts: Mapping[str, str]) -> dict[str, list[Problem]]:
    """Return the problems of each host; ``hosts`` has the host of each prefix of servers' names."""
    # The gateways that know a server, and those that report each problem of it.
    known: dict[str, set[str]] = defaultdict(set)
    reports: dict[tuple[str, Problem], set[str]] = defaultdict(set)
    scaled = [each for result in results.values() for each in (result.get("scale") or {}).values()]
    idle = {name for each in scaled for name in each.get("idle", [])}
    for gateway, result in results.items():
        for name, entry in result.get("servers", {}).items():
            known[name].add(gateway)
            # A replica that is down because the others are enough is well.
            problem = None if name in idle and entry["state"] == READY and not entry["up"] else problem_of_server(entry)
            if problem:
                reports[name, problem].add(gateway)
    found: dict[str, list[Problem]] = defaultdict(list)
    for (name, problem), gateways in sorted(reports.items()):
        prefix = prefix_of(name, hosts)
        if prefix:
            place = "" if gateways == known[name] else f" at {', '.join(sorted(gateways))}"
            found[hosts[prefix]].append(problem._replace(text=f"{name[len(prefix) :]}: {problem.text}{place}"))
    return found


def prefix_of(name: str, prefixes: Container[str]) -> str:
    """Return the longest prefix of a server's name, "" for a server of no host; names of hosts may contain ``--``."""
    parts = name.split("--")
    starts = ("--".join(parts[:size]) + "--" for size in range(len(parts) - 1, 0, -1))
    return next((start for start in starts if start in prefixes), "")


def problem_of_server(entry: Mapping[str, Any]) -> Problem | None:
    if entry["state"] != READY:
        if not entry["owner"]:
            return Problem(DRAINED, "drained by hand", SEE_DRAINED)
        reason = f": {entry['reason']}" if entry["reason"] else ""
        is_removed, of_rollout = entry["reason"] == REMOVED, owner_kind(entry["owner"]) == "rollout"
        todo = SEE_REMOVED if is_removed else SEE_ROLLOUT if of_rollout else SEE_DRAINED
        return Problem(DRAINED, f"drained by {entry['owner']} since {entry['since']}{reason}", todo)
    if not entry["up"]:
        return Problem(SICK, f"down: {entry['why'] or 'no reason given'}", SEE_SICK)
    # A sick server that its service needs stays up.
    return Problem(SICK, entry["why"], SEE_SICK) if entry["why"] else None


def _with_problems(line: Line, problems: Sequence[Problem]) -> Line:
    if not problems:
        return line
    worst = min(problems, key=lambda problem: STATES.index(problem.state))
    why = "; ".join(problem.text for problem in problems)
    if STATES.index(line.state) < STATES.index(worst.state):
        return replace(line, why=f"{line.why}; {why}")
    todo = worst.todo + (SEE_HEALTH if worst.state == SICK and line.has_health else "")
    return replace(line, state=worst.state, why=f"{why}; {line.why}" if line.why else why, todo=todo)
