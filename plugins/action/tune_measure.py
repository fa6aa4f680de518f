# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import asdict
from typing import Any, Mapping

from ansible.errors import AnsibleActionFail

from ..module_utils.bench.measurement import Measurement
from ..plugin_utils.bench.choice import chips_of
from ..plugin_utils.bench.run import Seeds
from ..plugin_utils.bench.summary import figures_line, slowed_notes
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show, warn
from ..plugin_utils.tune.store import Store, rules_of, step_of
from ..plugin_utils.tune.variants import CURRENT, TuneError


class DiedError(Exception):
    """The instance died during a measurement; the message gives the reason."""


class ActionModule(ControllerAction):
    """Let the host measure the variant that it serves, and save the result on the controller immediately."""

    # The measurement is taken on the host.
    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, name, variant, number = (
            variables["inventory_hostname"], options["instance"], options["variant"], options["round"]
        )  # fmt: skip
        store = Store(options["dir"], host, name)
        settings = store.settings()
        step, plan = step_of(settings), store.plan(variant)
        chips = {"stack": plan["stack"], "chips": chips_of(plan)}

        def measure(measurement: Measurement) -> Mapping[str, Any]:
            arguments = {"instance": name, "measurement": asdict(measurement), **chips}
            return self._on_host(
                "instance_bench", {**arguments, "timeout": options["timeout"], "user": options["user"]}, variables
            )

        where = f"{variant}, round {number} of {rules_of(settings).rounds}"
        seeds, records = Seeds(), store.records(plan)
        info = self._on_host("instance_bench_info", {"instance": name, **chips}, variables)
        try:
            measure(step.warm_up(seeds.seed("warm-up")))
            measurement = step.measurement(seeds.seed("measurement"))
            taken = measure(measurement)
        except DiedError as exc:
            if variant == CURRENT:
                raise TuneError(f"{host}: {exc}") from exc
            store.keep_failure(variant, f"round {number}: {' '.join(str(exc).split())}")
            show(f"{host} {name}: {where}: {exc}")
            return {"died": str(exc)}
        known = {"start_seconds": info["start_seconds"], "power_limit_watts": info["power_limit_watts"]}
        record = {**records.record(step, number, asdict(measurement), taken), **known}
        with records.opened():
            records.keep(step, number, record)
        for text in slowed_notes([record]):
            warn(f"{host} {name}: {variant}: {text} (tune_fresh=true)")
        show(f"{host} {name}: {where}: {figures_line(record)}, start {info['start_seconds'] or '?'} s")
        return {"changed": True, "figures": figures_line(record)}

    def _on_host(self, module: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module of this collection on the host. Raises DiedError, and AnsibleActionFail for other failures."""
        result: dict[str, Any] = self._execute_module(
            module_name=f"baremetal.inference.{module}", module_args=arguments, task_vars=variables, wrap_async=False
        )
        if result.get("died"):
            raise DiedError(str(result["msg"]))
        if result.get("failed") or result.get("unreachable"):
            raise AnsibleActionFail(
                f"{result.get('msg') or module + ' failed without a message'} The measurements so far are kept; "
                "the next run goes on."
            )
        return result
