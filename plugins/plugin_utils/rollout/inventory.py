# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of a rollout: the inventory, the states read from the hosts, and earlier journals."""

import os
from dataclasses import dataclass, field
from typing import Any, Collection, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.gateway.servers import server_name
from ...module_utils.vllm.plan_document import INNER
from ..common.tables import hosts_in_words
from ..fleet.host_reader import FleetError
from ..gateway.inventory import INFERENCE, backends_of, clusters_of
from ..gateway.of_hosts import gateways_of
from .journal import JOURNAL, JournalState, may_run, read, state_of
from .units import Seen, Units, check_units, touched
from .waves import Concerned, Pace, RolloutError, Serving, Wave

# Options that must be equal on all hosts of a rollout; the other options must be equal within a cluster.
WHOLE = ("state_dir", "order")
# Groups of hosts that a plan lists by name.
SHOWN_GROUPS = 4


@dataclass(frozen=True)
class Known:
    """A rollout of this controller: whether it ended, whether it runs now, its hosts, and by cluster the host that
    keeps the lock."""

    id: str
    ended: bool
    running: bool
    hosts: frozenset[str]
    locks: Mapping[str, str] = field(default_factory=dict)


def concerned_of(hosts: Sequence[str], seen: Seen, units: Units) -> list[Concerned]:
    """Return the hosts that change or whose update was interrupted, in the inventory's order; all hosts of a unit with
    one of them. Raises RolloutError."""
    changing = [host for host in hosts if host in seen and seen[host]["concerned"]]
    check_units(changing, seen, units)
    wanted = {member for host in changing for member in units.get(host, [host])}
    return [Concerned(host, seen[host]["cluster"], seen[host]["interrupted"]) for host in hosts if host in wanted]


def by_cluster(seen: Seen) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the states read from the hosts, by cluster."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for host, entry in seen.items():
        found.setdefault(entry["cluster"], {})[host] = entry
    return found


def with_clusters(seen: Seen, groups: Any, variables: Any) -> dict[str, dict[str, Any]]:
    """Return the states read from the hosts, each with the cluster of its host. Raises GatewayError."""
    clusters = clusters_of(dict.fromkeys([*groups.get(INFERENCE, []), *seen]), variables)
    return {host: {**entry, "cluster": clusters[host]} for host, entry in seen.items()}


def serving_of(
    clusters: Collection[str], kind: str, groups: Any, hostvars: Any, variables: Any, loader: Any
) -> list[Serving]:
    """Return all hosts of these clusters with their services; ``variables`` are those that decide on gateways.

    Raises FleetError where the planning of a host fails. A rollback uses the names of the instances instead of plans,
    because the fault may be in the inventory.
    """
    hosts = clusters_of(groups.get(INFERENCE, []), variables)
    wanted = [host for host, cluster in hosts.items() if cluster in clusters]
    try:
        backends = backends_of(wanted, hostvars, loader)
    except FleetError:
        if kind != "rollback":
            raise
        return [Serving(host, hosts[host], list(hostvars[host].get("vllm_instances") or {})) for host in wanted]
    return [
        Serving(
            backend.host,
            hosts[backend.host],
            [plan["replica_of"] for plan in backend.plans.values() if plan.get("group", {}).get("role") not in INNER],
        )
        for backend in backends
    ]


def pace_of(seen: Seen) -> Pace:
    """Return the wave sizes and limits of a cluster, from the options of its hosts."""
    return Pace(
        canaries=shared_option("canaries", seen),
        waves=shared_option("waves", seen),
        min_available=shared_option("min_available", seen),
    )


def shared_option(name: str, seen: Seen) -> Any:
    """Return the value of an option that all of these hosts must share.

    Raises RolloutError that names two hosts with different values.
    """
    first, value = next((host, entry["options"][name]) for host, entry in seen.items())
    for host, entry in seen.items():
        other = entry["options"][name]
        if value != other:
            raise RolloutError(
                f"rollout_{name} is {show_value(value)} for {first} and {show_value(other)} for {host}: set the same "
                f"value for all hosts of {'the rollout' if name in WHOLE else 'a cluster'}"
            )
    return value


def turns_of(waves: Sequence[Wave], seen: Seen, units: Units, groups: Any, variables: Any) -> dict[str, dict[str, Any]]:
    """Return the data that the update of each host needs.

    ``members`` are the hosts that are changed together with it, itself included; ``restarts`` its instances that start
    again with them, ``before`` and ``to`` the states of these before the rollout and after a rollback.
    """
    gateways = gateways_of([host for wave in waves for host in wave.all_hosts()], groups, variables)
    return {
        host: {
            "cluster": cluster,
            "wave": number,
            "gateways": gateways[host],
            "instances": seen[host]["instances"],
            "asked": seen[host]["servers"],
            "servers": [server_name(host, name) for name in seen[host]["servers"]],
            "members": list(units.get(host, [host])),
            "restarts": touched(host, seen),
            "before": _earlier(host, seen),
            "to": _targets(host, seen),
            "changes": sorted(seen[host]["changes"]),
            "words": _describe_turn(host, seen, units),
        }
        for number, wave in enumerate(waves)
        for cluster, hosts in wave.hosts.items()
        for host in hosts
    }


def _describe_turn(host: str, seen: Seen, units: Units) -> str:
    own = seen[host]
    if own["words"] or own["interrupted"]:
        return _own_words(own)
    others = [each for each in units[host] if each != host]
    return f"{', '.join(touched(host, seen)) or 'nothing'}: started again together with {hosts_in_words(others)}"


def _own_words(own: Mapping[str, Any]) -> str:
    return str(own["words"] or f"go on after {own['interrupted']}")


def _earlier(host: str, seen: Seen) -> dict[str, str]:
    """Return by instance over several hosts the state before the rollout; after an interruption the good one counts."""
    states = {} if seen[host]["interrupted"] else seen[host]["states"]
    return {name: states[name] for name in touched(host, seen) if name in states}


def _targets(host: str, seen: Seen) -> dict[str, str]:
    """Return by instance the state that a rollback restores; instances that only start again keep theirs."""
    changes = {name: change["to"] for name, change in seen[host]["changes"].items() if "to" in change}
    installed = seen[host]["installed"]
    return {**{name: installed[name] for name in touched(host, seen) if name in installed}, **changes}


def lock_hosts(turns: Mapping[str, Mapping[str, Any]], groups: Any, variables: Any) -> dict[str, str]:
    """Return the host that keeps the lock of each cluster: its first gateway, else its first inference host.

    Every run with the same inventory finds the same host, whichever hosts take part.
    """
    wanted = {turn["cluster"] for turn in turns.values()}
    hosts: dict[str, list[str]] = {cluster: [] for cluster in wanted}
    for host, cluster in clusters_of(groups.get(INFERENCE, []), variables).items():
        if cluster in wanted:
            hosts[cluster].append(host)
    gateways = gateways_of([host for names in hosts.values() for host in names], groups, variables)
    found = {}
    for cluster, names in hosts.items():
        before = {gateway for host in names for gateway in gateways[host]}
        found[cluster] = min(before or names or [host for host, turn in turns.items() if turn["cluster"] == cluster])
    return found


def own_changes(seen: Mapping[str, Any]) -> dict[str, str]:
    """Return what changes on each host by itself, from the answers of the hosts, for a rollout that has no plan."""
    answers = {host: entry for host, entry in seen.items() if entry and entry["concerned"]}
    return {host: _own_words(entry) for host, entry in answers.items()}


def describe_changes(words: Mapping[str, str], kind: str) -> list[str]:
    """Return a line for each distinct change; ``words`` has that of each host."""
    what, found = "goes back" if kind == "rollback" else "changes", dict[str, list[str]]()
    for host, text in words.items():
        found.setdefault(text, []).append(host)
    return [f"{what} on {hosts_in_words(hosts)}: {text}" for text, hosts in found.items()]


def describe_plan(waves: Sequence[Wave], turns: Mapping[str, Mapping[str, Any]], kind: str) -> list[str]:
    """Return the announcement of the rollout: a line for each wave and for each distinct change."""
    lines = describe_changes({host: turn["words"] for host, turn in turns.items()}, kind)
    without = [host for host, turn in turns.items() if not turn["gateways"]]
    if without:
        lines.append(
            f"behind no gateway, so the rollout can only wait for requests that already run: {hosts_in_words(without)}"
        )
    together = list(dict.fromkeys(tuple(turn["members"]) for turn in turns.values() if len(turn["members"]) > 1))
    lines += [f"changed together, as one: {hosts_in_words(members)}" for members in together[:SHOWN_GROUPS]]
    if together[SHOWN_GROUPS:]:
        lines.append(f"and {len(together) - SHOWN_GROUPS} more groups of hosts, each of them as one")
    for number, wave in enumerate(waves):
        name = f"wave {number + 1} of {len(waves)}{' (canary)' if wave.canary else ''}"
        lines.append(f"{name}: {hosts_in_words(wave.all_hosts())}")
    return lines


def events_of(
    name: str, waves: Sequence[Wave], turns: Mapping[str, Mapping[str, Any]], seen: Seen, who: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the first events of a journal."""
    words: dict[str, list[str]] = {}
    for host, turn in turns.items():
        words.setdefault(turn["words"], []).append(host)
    begun = {
        "event": "begun",
        "id": name,
        "clusters": list(dict.fromkeys(turn["cluster"] for turn in turns.values())),
        "summary": " | ".join(f"{text} ({len(hosts)} hosts)" for text, hosts in words.items()),
        "waves": [wave.all_hosts() for wave in waves],
        "options": next(iter(seen.values()))["options"],
        **who,
    }
    hosts = [
        {
            "event": "host",
            "host": host,
            "cluster": turn["cluster"],
            "wave": turn["wave"],
            "changes": seen[host]["changes"],
            "states": {name: digest for name, digest in seen[host]["states"].items() if name in seen[host]["changes"]},
            "others": turn["words"] if not seen[host]["changes"] else "",
        }
        for host, turn in turns.items()
    ]
    return [begun, *hosts]


def known_rollouts(directory: str) -> list[Known]:
    """Return the rollouts that have a journal in ``directory``, oldest first; unreadable journals are left out."""
    found = []
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        path = os.path.join(directory, name, JOURNAL)
        try:
            state = state_of(read(path))
        except OSError:
            continue
        if state.begun:
            ended = bool(state.result)
            running = not ended and may_run(state.begun)
            locks = state.begun.get("locks") or {}
            found.append(Known(name, ended, running, frozenset(state.clusters), locks))
    return found


def undone_by(rollout: str, directory: str) -> dict[str, dict[str, dict[str, str]]]:
    """Return what a rollout has changed: by host and instance the states ``before`` and ``after`` it.

    The interrupted rollouts that it continued are included. ``last`` means the newest rollout that changed a host and
    was not a rollback. Raises RolloutError where this controller has no such journal.
    """
    states = _states(directory)
    changes = [name for name, state in states.items() if state.changed() and state.begun.get("kind") != "rollback"]
    name = changes[-1] if rollout == "last" and changes else rollout
    if name not in states:
        hint = nearest(rollout, list(states)) if states else "there is none"
        raise RolloutError(f"rollout_undo: no rollout {rollout!r} in {directory} on this controller; {hint}")
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in reversed(_chain(name, states)):
        for host in part.changed():
            entries = found.setdefault(host, {})
            for instance, digest in part.before.get(host, {}).items():
                entry = entries.setdefault(instance, {"before": digest, "after": ""})
                entry["after"] = part.after.get(host, {}).get(instance, "")
    return found


def returned_by(directory: str) -> list[str]:
    """Return the hosts that the newest journal has rolled back already, if it is of a rollback that did not succeed."""
    state = next(reversed(list(_states(directory).values())), None)
    if state is None or state.begun.get("kind") != "rollback" or state.result == "done":
        return []
    return [host for host, step in state.steps.items() if step == "done"]


def _chain(name: str, states: Mapping[str, JournalState]) -> list[JournalState]:
    """Return a rollout and the rollouts of the same kind that it continued, newest first."""
    names = [name]
    for known in names:
        begun = states[known].begun
        names += [
            earlier
            for earlier in begun.get("resumes") or []
            # A journal is a file: one that continues itself would be followed for ever.
            if earlier in states and earlier not in names and states[earlier].begun.get("kind") == begun.get("kind")
        ]
    return [states[name] for name in names]


def _states(directory: str) -> dict[str, JournalState]:
    """Return the rollouts that have started to update a host, by their names, oldest first."""
    found = {}
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        try:
            state = state_of(read(os.path.join(directory, name, JOURNAL)))
        except OSError:
            continue
        if state.steps:
            found[name] = state
    return found
