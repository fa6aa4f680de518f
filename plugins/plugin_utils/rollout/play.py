# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plays of a rollout need: its name, what earlier ones left, and the hosts in the order of the waves."""

from typing import Any, Collection, Mapping, Sequence

from ..common.tables import hosts_in_words
from .inventory import known_rollouts, shared_option
from .journal import new_id
from .units import Seen
from .waves import Wave

# A pattern that no host matches.
NOBODY = "localhost:!localhost"
NOTHING = {
    "fetching": NOBODY,
    "controller_host": NOBODY,
    "order": NOBODY,
    "serial": 1,
    "hosts": {},
    "waves": [],
    "locks": {},
    "gateways": [],
    "events": [],
}


def why_nobody(hosts: Sequence[str]) -> str:
    """Return why no host was checked."""
    if hosts:
        return (
            f"none of {len(hosts)} hosts could be checked ({hosts_in_words(hosts)}): each was unreachable or failed; "
            "correct the errors above and run the playbook again"
        )
    return "no host was checked; put hosts into the group 'inference', or name some by -e target_hosts=PATTERN"


def base_of(directory: str, known: Collection[str]) -> dict[str, Any]:
    """Return the name of the rollout, and what earlier ones of this controller have left on ``known`` hosts."""
    before = [entry for entry in known_rollouts(directory) if not entry.running]
    dead = [entry for entry in before if not entry.ended and not entry.hosts.isdisjoint(known)]
    return {
        "id": new_id(),
        "directory": directory,
        "resumes": [entry.id for entry in dead],
        "left": [
            {"id": entry.id, "cluster": cluster, "host": host}
            for entry in dead
            for cluster, host in entry.locks.items()
            if host in known
        ],
        # Locks that they left belong to no running rollout.
        "stale": [entry.id for entry in before],
    }


def order_of(waves: Sequence[Wave], clusters: Mapping[str, Seen]) -> dict[str, Any]:
    """Return the waves, and the hosts as a play takes them."""
    pauses = {cluster: shared_option("pause", seen) for cluster, seen in clusters.items()}
    confirms = {cluster: shared_option("confirm", seen) for cluster, seen in clusters.items()}
    # Each wave begins with an entry for the controller: the name of the wave.
    names = [f"rollout-wave-{number + 1}" for number in range(len(waves))]
    return {
        "order": [host for name, wave in zip(names, waves) for host in (name, *wave.all_hosts())],
        "serial": [len(wave.all_hosts()) + 1 for wave in waves],
        "waves": [
            {
                "name": name,
                "canary": wave.canary,
                "hosts": wave.hosts,
                "pause": max(pauses[cluster] for cluster in wave.hosts),
                "confirm": any(confirms[cluster] for cluster in wave.hosts),
            }
            for name, wave in zip(names, waves)
        ],
    }
