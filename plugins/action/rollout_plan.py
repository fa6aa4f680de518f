# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import platform
from typing import Any, Collection, Mapping, Sequence

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.controller_user import controller_user
from ..plugin_utils.common.tables import hosts_in_words
from ..plugin_utils.fleet.host_reader import FleetError
from ..plugin_utils.gateway.inventory_variables import InventoryVariables
from ..plugin_utils.gateway.services import GatewayError
from ..plugin_utils.rollout.inventory import (
    by_cluster,
    concerned_of,
    describe_plan,
    events_of,
    known_rollouts,
    lock_hosts,
    pace_of,
    serving_of,
    shared_option,
    turns_of,
    with_clusters,
)
from ..plugin_utils.rollout.journal import new_id
from ..plugin_utils.rollout.units import Seen, groups_seen, units_of
from ..plugin_utils.rollout.waves import RolloutError, Wave, waves_of

SEEN = "__rollout_seen"
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


class ActionModule(ControllerAction):
    """Divides the hosts of a rollout into waves."""

    ERRORS = (RolloutError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hostvars, groups = variables["hostvars"], variables["groups"]
        seen = {host: hostvars.raw_get(host).get(SEEN) for host in options["hosts"]}
        try:
            variables_of = InventoryVariables(hostvars, self._loader)
            known = with_clusters({host: entry for host, entry in seen.items() if entry}, groups, variables_of)
            return self._plan(options, known, groups, hostvars, variables_of)
        except (RolloutError, GatewayError, FleetError) as exc:
            raise RolloutError(f"nothing was changed: {exc}") from exc

    def _plan(self, options: Mapping[str, Any], seen: Seen, groups: Any, hostvars: Any, known: Any) -> dict[str, Any]:
        if not seen:
            raise RolloutError(_nobody(options["hosts"]))
        units = units_of(groups_seen(seen, set(groups.get("all", []))))
        concerned = concerned_of(options["hosts"], seen, units)
        base = _base(str(shared_option("state_dir", seen)), set(groups.get("all", [])))
        if not concerned:
            return {
                **base,
                **NOTHING,
                "summary": [f"Nothing to do: all of {len(seen)} hosts match the inventory"],
            }
        concerns = {entry.cluster for entry in concerned}
        clusters = {cluster: seen_in for cluster, seen_in in by_cluster(seen).items() if cluster in concerns}
        paces = {cluster: pace_of(seen_in) for cluster, seen_in in clusters.items()}
        serving = serving_of(clusters, options["kind"], groups, hostvars, known, self._loader)
        waves = waves_of(concerned, serving, paces, shared_option("order", seen), units)
        turns = turns_of(waves, seen, units, groups, known)
        who = {"user": controller_user(os.environ), "controller": platform.node(), "kind": options["kind"]}
        locks = lock_hosts(turns, groups, known)
        begun = {**who, "resumes": base["resumes"], "locks": locks}
        return {
            **base,
            **who,
            **_order(waves, clusters),
            # Check mode ends with the plan.
            **({"order": NOBODY} if self._task.check_mode else {}),
            "fetching": NOBODY if self._task.check_mode else list(turns),
            "controller_host": NOBODY if self._task.check_mode else "localhost",
            "hosts": turns,
            "locks": locks,
            "gateways": list(dict.fromkeys(gateway for turn in turns.values() for gateway in turn["gateways"])),
            "limits": {cluster: shared_option("max_failures", seen_in) for cluster, seen_in in clusters.items()},
            "summary": describe_plan(waves, turns, options["kind"]),
            "events": events_of(str(base["id"]), waves, turns, seen, begun),
        }


def _nobody(hosts: Sequence[str]) -> str:
    """Return why no host was checked."""
    if hosts:
        return (
            f"none of {len(hosts)} hosts could be checked ({hosts_in_words(hosts)}): each was unreachable or failed; "
            "correct the errors above and run the playbook again"
        )
    return "no host was checked; put hosts into the group 'inference', or name some by -e rollout_hosts=PATTERN"


def _base(directory: str, known: Collection[str]) -> dict[str, Any]:
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


def _order(waves: Sequence[Wave], clusters: Mapping[str, Seen]) -> dict[str, Any]:
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
