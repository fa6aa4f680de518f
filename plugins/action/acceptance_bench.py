# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import asdict
from typing import Any, Mapping

from ..module_utils.bench.measurement import Measurement
from ..plugin_utils.acceptance.bench import SECONDS, busy, short_figures, short_step
from ..plugin_utils.bench.run import Seeds
from ..plugin_utils.bench.workloads import WorkloadError
from ..plugin_utils.common.action import ControllerAction


class FailedError(Exception):
    """A module failed on the host; the message is its own."""


class ActionModule(ControllerAction):
    """Lets the host measure one instance for seconds; what goes wrong is part of the result."""

    # The measurement is taken on the host.
    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        if self._task.check_mode:
            return {"not_tried": "check mode measures nothing"}
        try:
            return self._bench(options, variables)
        except (FailedError, WorkloadError) as exc:
            return {"problem": str(exc)}

    def _bench(self, options: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        instance = {"instance": options["instance"]}
        info = self._on_host("instance_bench_info", instance, variables)
        if busy(info):
            return {"not_tried": busy(info)}
        step, seeds = short_step(options["stack"], info["max_model_len"]), Seeds()

        def measure(measurement: Measurement) -> Mapping[str, Any]:
            given = {**instance, "measurement": asdict(measurement), "timeout": SECONDS, "user": options["user"]}
            found: Mapping[str, Any] = self._on_host("instance_bench", given, variables)["result"]
            return found

        measure(step.warm_up(seeds.seed("warm-up")))
        measurement = step.measurement(seeds.seed("measurement"))
        return {"figures": short_figures(measurement, measure(measurement))}

    def _on_host(self, module: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module of this collection on the host and return its result. Raises FailedError."""
        result: dict[str, Any] = self._execute_module(
            module_name=f"baremetal.inference.{module}", module_args=arguments, task_vars=variables, wrap_async=False
        )
        if result.get("failed") or result.get("unreachable"):
            raise FailedError(str(result.get("msg") or f"{module} failed without a message").rstrip("."))
        return result
