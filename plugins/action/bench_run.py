# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import asdict
from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleActionFail

from ..module_utils.bench.measurement import Measurement
from ..plugin_utils.bench.choice import check_installed, chips_of, choose_instance
from ..plugin_utils.bench.records import Records, read_summary
from ..plugin_utils.bench.request import check_request
from ..plugin_utils.bench.results import evidence_of, write_results
from ..plugin_utils.bench.run import Measure, Seeds, run_steps
from ..plugin_utils.bench.summary import Record
from ..plugin_utils.bench.workloads import (
    Amount,
    Fitted,
    choose_workloads,
    fit,
    load_workloads,
    read_concurrency,
)
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show, warn
from ..plugin_utils.evidence.document import plan_digest


class ActionModule(ControllerAction):
    """Decide what to measure, let the host take each measurement, and keep the results on the controller."""

    # The measurements are taken on the host.
    _requires_connection = True

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        check_request(options)
        name = choose_instance(options["plans"], options["instance"])
        plan, host = options["plans"][name], variables["inventory_hostname"]
        check_installed(name, plan, options["slots"].get(name))
        workloads = choose_workloads(load_workloads(options["workload_definitions"]), options["workloads"])
        other = read_summary("bench_compare", options["compare"]) if options["compare"] else None
        chips = {"stack": plan["stack"], "chips": chips_of(plan)}
        info = self._on_host("instance_bench_info", {"instance": name, **chips}, variables)
        fitted = fit(
            workloads,
            read_concurrency(options["concurrency"], plan["stack"]),
            Amount(options["requests_per_stream"], options["requests_min"]),
            info["max_model_len"],
            plan["args"].get("max-num-seqs"),
            bool(options["workloads"]),
            options["shorten"],
        )
        self._say(host, name, fitted.notes)
        if self._task.check_mode:
            steps = [f"{step.name} ({step.requests} requests)" for step in fitted.steps]
            self._say(host, name, [f"would be measured {options['repeats']} times each: {', '.join(steps)}"])
            return {"instance": name, "notes": fitted.notes, "steps": [step.name for step in fitted.steps]}
        if options["shared"] and info["running"] + info["waiting"]:
            busy = f"{info['running']} running and {info['waiting']} waiting requests of others"
            warn(f"{host} {name}: {busy}; the figures include their load")

        def measure(measurement: Measurement) -> Mapping[str, Any]:
            arguments = {"instance": name, "measurement": asdict(measurement), **chips}
            arguments.update({key: options[key] for key in ("timeout", "shared", "user")})
            return self._on_host("instance_bench", arguments, variables)

        records = Records(options["dir"], host, name, plan_digest(plan))
        with records.opened():
            if options["fresh"]:
                records.forget()
            found = self._measure(fitted, options, records, measure, lambda line: self._say(host, name, [line]))
            summary = {"host": host, "instance": name, **evidence_of(plan, info, options["driver"], found)}
            written = write_results(records, found, fitted.notes, summary, other)
        for text in written.slowed:
            warn(f"{host} {name}: {text}")
        self._say(host, name, written.lines)
        return {"changed": True, "instance": name, **written.values}

    @staticmethod
    def _measure(
        fitted: Fitted, options: Mapping[str, Any], records: Records, measure: Measure, say: Callable[[str], None]
    ) -> list[Record]:
        """Take the measurements that are not there yet. Raises AnsibleActionFail, which says where the others are."""
        seeds = Seeds(int(options["seed"]) if options["seed"] else None)
        try:
            return run_steps(fitted.steps, options["repeats"], records, measure, say, seeds)
        except AnsibleActionFail as exc:
            kept = f"The measurements so far are kept in {records.directory}; the next run takes only the rest."
            # The end of an instance is reported with lines of its journal.
            between = "\n" if "\n" in str(exc) else " "
            raise AnsibleActionFail(f"{exc}{between}{kept}") from None

    def _on_host(self, module: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module of this collection on the host and return its result. Raises AnsibleActionFail."""
        result: dict[str, Any] = self._execute_module(
            module_name=f"baremetal.inference.{module}", module_args=arguments, task_vars=variables, wrap_async=False
        )
        if result.get("failed") or result.get("unreachable"):
            raise AnsibleActionFail(str(result.get("msg") or f"{module} failed without a message"))
        return result

    @staticmethod
    def _say(host: str, name: str, lines: Sequence[str]) -> None:
        for line in lines:
            show(f"{host} {name}: {line}")
