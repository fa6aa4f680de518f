# SPDX-License-Identifier: GPL-3.0-or-later

import os
import platform
from typing import Any, Mapping

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.controller_user import controller_user
from ..plugin_utils.common.output import show
from ..plugin_utils.fleet.host_reader import FleetError
from ..plugin_utils.gateway.inventory_variables import InventoryVariables
from ..plugin_utils.gateway.services import GatewayError
from ..plugin_utils.rollout.inventory import (
    by_cluster,
    concerned_of,
    describe_changes,
    describe_plan,
    events_of,
    lock_hosts,
    own_changes,
    pace_of,
    serving_of,
    shared_option,
    turns_of,
    with_clusters,
)
from ..plugin_utils.rollout.play import NOBODY, NOTHING, base_of, order_of, why_nobody
from ..plugin_utils.rollout.units import Seen, groups_seen, units_of
from ..plugin_utils.rollout.waves import RolloutError, waves_of

SEEN = "__rollout_seen"


class ActionModule(ControllerAction):
    """Divides the hosts of a rollout into waves."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hostvars, groups = variables["hostvars"], variables["groups"]
        seen = {host: hostvars.raw_get(host).get(SEEN) for host in options["hosts"]}
        try:
            variables_of = InventoryVariables(hostvars, self._loader)
            known = with_clusters({host: entry for host, entry in seen.items() if entry}, groups, variables_of)
            return self._plan(options, known, groups, hostvars, variables_of)
        except (RolloutError, GatewayError, FleetError) as exc:
            # A refused rollout has no plan; the hosts have answered what it would change.
            if lines := describe_changes(own_changes(seen), options["kind"]):
                show("\n".join(lines))
            raise RolloutError(f"nothing was changed: {exc}") from exc

    def _plan(self, options: Mapping[str, Any], seen: Seen, groups: Any, hostvars: Any, known: Any) -> dict[str, Any]:
        if not seen:
            raise RolloutError(why_nobody(options["hosts"]))
        units = units_of(groups_seen(seen, set(groups.get("all", []))))
        concerned = concerned_of(options["hosts"], seen, units)
        base = base_of(str(shared_option("state_dir", seen)), set(groups.get("all", [])))
        if not concerned:
            found = f"all {len(seen)} hosts match" if len(seen) > 1 else "the one host matches"
            return {**base, **NOTHING, "summary": [f"Nothing to do: {found} the inventory"]}
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
            **order_of(waves, clusters),
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
