# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.common.spelling import nearest
from ..plugin_utils.bench.workloads import Amount, Workload, load_workloads
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.tune.goal import Goal, parse_goal, read_count
from ..plugin_utils.tune.schedule import Rules
from ..plugin_utils.tune.store import Store
from ..plugin_utils.tune.variants import TuneError, changed_instances, check_instance, parse_variants


class ActionModule(ControllerAction):
    """Check the options of a tune, and begin it on the controller."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hosts = variables["ansible_play_hosts_all"]
        if len(hosts) != 1:
            raise AnsibleActionFail(f"target_hosts: found {len(hosts)} hosts, expected one; name it with -l HOST")
        name, instances = options["instance"], options["instances"]
        check_instance(instances, name)
        variants, goal = parse_variants(options["variants"], options["matrix"]), parse_goal(options["goal"])
        workload = self._workload(goal, options["workload_definitions"])
        amount = Amount(*(read_count(f"tune_{key}", options[key]) for key in ("requests_per_stream", "requests_min")))
        rules = Rules(
            read_count("tune_rounds", options["rounds"], 2),
            read_count("tune_drop_percent", options["drop_percent"]) / 100,
        )
        store = Store(options["dir"], variables["inventory_hostname"], name)
        store.check_free()
        if not self._task.check_mode:
            store.begin(variants, goal, rules, workload, amount)
        return {
            "id": store.id,
            "directory": str(store.directory),
            "goal": goal.describe(),
            "variants": [
                {"name": key, "instances": changed_instances(instances, name, change)}
                for key, change in variants.items()
            ],
            "steps": len(variants) * rules.rounds,
        }

    @staticmethod
    def _workload(goal: Goal, definitions: dict[str, Any]) -> Workload:
        known = load_workloads(definitions)
        if goal.workload not in known:
            raise TuneError(f"tune_goal.workload: {goal.workload!r} is not a workload; {nearest(goal.workload, known)}")
        return known[goal.workload]
