# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.tune.ready import check_drained, check_interrupted, check_lengths, return_states
from ..plugin_utils.tune.schedule import next_step
from ..plugin_utils.tune.store import Store, goal_of, rules_of, step_of
from ..plugin_utils.tune.variants import CURRENT, TuneError, changed_instances, check_plans, failure_of


class ActionModule(ControllerAction):
    """Keep the state of a tune on the controller, and return the next measurement."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables["inventory_hostname"]
        store = Store(options["dir"], host, options["instance"])
        return {
            "planned": self._planned, "ready": self._ready, "next": self._next, "failed": self._failed
        }[options["state"]](store, options, host)  # fmt: skip

    def _planned(self, store: Store, options: Mapping[str, Any], _host: str) -> dict[str, Any]:
        """Keep the plan of a variant; that of the first replica stands for all of them."""
        if not self._task.check_mode:
            store.keep_plan(options["variant"], options["plans"][options["instance"]])
        return {}

    def _ready(self, store: Store, options: Mapping[str, Any], host: str) -> dict[str, Any]:
        """Check that the host may be tuned now, and return the states to restore at the end."""
        plans = {name: plan for name, plan in options["plans"].items() if plan["replica_of"] == options["instance"]}
        try:
            if options["stop"]:
                check_interrupted(options["lock"], store.id)
            check_drained(host, list(plans), options["gateways"])
            states = return_states(plans, options["slots"], options["lock"], store.id)
        except TuneError as exc:
            raise TuneError(f"{host}: {exc}") from exc
        if not self._task.check_mode:
            settings = store.settings()
            names = list(settings["variants"])
            variants = {name: store.plan(name) for name in names}
            check_plans(variants)
            check_lengths(variants, step_of(settings).workload)
            if options["fresh"] and not options["stop"]:
                store.forget(names)
        return {"states": states}

    def _next(self, store: Store, options: Mapping[str, Any], _host: str) -> dict[str, Any]:
        """Return the variant that is measured next, with an empty name when all is measured."""
        settings = store.settings()
        names, rules = list(settings["variants"]), rules_of(settings)
        taken = store.taken(names, step_of(settings), rules.rounds)
        step = next_step(names, taken, goal_of(settings), rules)
        if step is None:
            return {"variant": "", "round": 0}
        change = settings["variants"][step.variant]
        return {
            "variant": step.variant,
            "round": step.round,
            "instances": changed_instances(options["instances"], options["instance"], change),
        }

    def _failed(self, store: Store, options: Mapping[str, Any], host: str) -> dict[str, Any]:
        """Note that a variant does not start; the unchanged instance must start."""
        reason = failure_of(options["failed"])
        if options["variant"] == CURRENT:
            raise TuneError(
                f"{host}: the unchanged instance does not start, so there is nothing to compare with: {reason}"
            )
        store.keep_failure(options["variant"], f"does not start: {reason}")
        return {"failed_variant": options["variant"], "reason": reason}
