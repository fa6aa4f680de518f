# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of a rollout: hosts that are changed together, because an instance spans them."""

from typing import Any, Collection, Iterable, Iterator, Mapping, Sequence

from .waves import RolloutError

# By host: all hosts of its unit. A host that is not in it is a separate unit.
Units = Mapping[str, Sequence[str]]
Seen = Mapping[str, Mapping[str, Any]]


def units_of(groups: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """Return the units of groups of hosts; groups that share a host are one unit. The first host names it."""
    found: dict[str, list[str]] = {}
    for hosts in dict.fromkeys(map(tuple, groups)):
        merged = list(dict.fromkeys(member for host in hosts for member in found.get(host, [host])))
        found.update(dict.fromkeys(merged, merged))
    return found


def groups_seen(seen: Seen, known: Collection[str]) -> list[list[str]]:
    """Return the groups of the hosts that were looked at. Hosts that are not ``known``, in the inventory, are left out:
    an installed instance may still name one that is gone. So are hosts that do not name the other one themselves, by
    their plan or by what is installed there: what one host reports would otherwise put others into its wave."""
    return [
        [other for other in group["hosts"] if other in known and _agrees(other, name, host, seen)]
        for host, entry in seen.items()
        for name, group in entry["groups"].items()
    ]


def _agrees(other: str, name: str, host: str, seen: Seen) -> bool:
    """Return whether a host names another one in a group; one that was not looked at is left to check_units."""
    return other not in seen or host in seen[other]["groups"].get(name, {}).get("hosts", ())


def check_units(hosts: Iterable[str], seen: Seen, units: Units) -> None:
    """Raise RolloutError where hosts to change serve together with hosts of another cluster, or outside of the run."""
    wanted = {member for host in hosts for member in units.get(host, [host]) if member in seen}
    # The first host that names the others is enough.
    problems = {
        text: host
        for host in sorted(wanted, reverse=True)
        for name, group in seen[host]["groups"].items()
        for text in _problems(name, [each for each in group["hosts"] if each in units.get(host, [host])], seen)
    }
    if problems:
        raise RolloutError("\n".join(f"{host}: {text}" for text, host in problems.items()))


def _problems(name: str, members: Sequence[str], seen: Seen) -> Iterator[str]:
    """Yield what is wrong with the hosts of an instance; the same for each of them."""
    absent = [each for each in members if each not in seen]
    if absent:
        yield (
            f"{name} spans hosts that this run leaves out: {', '.join(absent)}; a group is changed as a whole, "
            "so name all of its hosts with target_hosts, or none of them"
        )
    clusters: dict[str, str] = {}
    for each in members:
        if each in seen:
            clusters.setdefault(seen[each]["cluster"] or "(none)", each)
    if len(clusters) > 1:
        found = ", ".join(f"{each} in {cluster}" for cluster, each in clusters.items())
        yield f"{name} spans several clusters ({found}), and each has its own lock; put its hosts into one cluster"


def touched(host: str, seen: Seen) -> list[str]:
    """Return the instances over several hosts that start again on a host.

    Those of which any host changes, or was interrupted in an earlier rollout.
    """
    return [
        name
        for name, group in seen[host]["groups"].items()
        if any(each in seen and (name in seen[each]["changes"] or seen[each]["interrupted"]) for each in group["hosts"])
    ]
