#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_bench
short_description: (internal) Take one measurement of a vLLM instance with vllm bench serve
description:
  - Runs C(vllm bench serve) from the instance's own virtual environment, or in its running container, against the
    instance's own address. The power of the instance's chips is sampled meanwhile with the vendor's tool.
  - It fails where a request fails, where the instance serves others before or meanwhile, where it dies, and where the
    benchmark takes too long.
  - It changes no file of the instance.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description:
      - Name of the instance. Address, served model name, tokenizer and API key are read from its files on the host.
    type: str
    required: true
  measurement:
    description: The parameters of the measurement.
    type: dict
    required: true
    suboptions:
      dataset:
        description: Random prompts, or prompts that share prefixes.
        type: str
        choices: [random, prefix_repetition]
        required: true
      input_tokens:
        description: Length of each prompt, including its shared prefix.
        type: int
        required: true
      output_tokens:
        description: Length of each answer.
        type: int
        required: true
      prefix_tokens:
        description: Length of the shared prefixes.
        type: int
        default: 0
      prefixes:
        description: How many different prefixes there are; O(measurement.requests) is a multiple of it.
        type: int
        default: 0
      requests:
        description: Number of requests.
        type: int
        required: true
      concurrency:
        description: Requests at a time.
        type: int
        required: true
      request_rate:
        description: Arrivals per second; 0 for all at once.
        type: float
        default: 0
      burstiness:
        description: Shape of the gamma distribution of the arrivals. 1 is a Poisson process, less comes in bursts.
        type: float
        default: 1
      seed:
        description: Seed of the prompts. With a seed that this process of the instance has seen already, the prefix
          cache answers, and the figures are wrong.
        type: int
        required: true
  stack:
    description: The stack of the instance's chips, which decides whose tool reports their power.
    type: str
    default: cpu
  chips:
    description: The numbers of its chips on the host.
    type: list
    elements: int
    default: []
  timeout:
    description: Seconds until the benchmark must be finished.
    type: float
    default: 1800
  shared:
    description: Whether the instance may serve others meanwhile.
    type: bool
    default: false
  idle_timeout:
    description: Seconds to wait for running requests before the measurement.
    type: float
    default: 30
  user:
    description: The user that the benchmark runs as, where the instance runs in a virtual environment.
    type: str
    default: vllm
  root:
    description: Root of the host's files; for tests.
    type: path
    default: /
notes:
  - Reading the secrets needs root (C(become)).
"""

EXAMPLES = "\n# plugins/action/bench_run.py\n"

from typing import Any

from ..module_utils.bench.answers import finished_requests, other_requests
from ..module_utils.bench.measurement import BenchError, Measurement, measurement_of
from ..module_utils.bench.run_host import Chips, measure
from ..module_utils.bench.target_host import Instance, read_instance
from ..module_utils.chip_counters.read_host import read_counters
from ..module_utils.chip_counters.slowed import slowed_chips
from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.endpoint.client import TimedClient
from ..module_utils.endpoint.idle import read_load, wait_until_idle
from ..module_utils.endpoint.ready import Watch
from ..module_utils.vendor_stack.counters import CountersAnswer
from ..module_utils.vllm.unit import Unit, UnitError, reasons, redact_lines

ANSWER = 10.0
SETTLE = 0.5


class DiedError(Exception):
    """The instance ended during the measurement; the message is the whole text for the user."""


def taken(module: AnsibleModule, instance: Instance, measurement: Measurement) -> dict[str, Any]:
    """Take the measurement and return the result of the module. Raises BenchError, DiedError and UnitError."""
    options, client = module.params, instance.client()
    watch = Watch(Unit(f"vllm@{instance.name}.service", module.run_command))
    if not options["shared"]:
        check_idle(instance, client, options["idle_timeout"])
    before = finished(client)
    chips = Chips(options["stack"], tuple(options["chips"]))
    counters = read_counters(chips.stack) if chips.numbers else CountersAnswer()
    try:
        result, power = measure(instance, measurement, chips, options["timeout"], options["user"])
    except BenchError as exc:
        raise cause_of(watch, instance, exc) from exc
    others = other_requests(before, finished(client), result)
    if others and not options["shared"]:
        raise BenchError(
            f"instance {instance.name} answered {others} requests of others during the measurement, so its figures say "
            "nothing; drain the host first (playbooks/drain.yml), or set bench_shared=true"
        )
    slowed = slowed_chips(counters, read_counters(chips.stack), chips.numbers) if counters.chips else []
    return {"result": result, "power": power, "other_requests": others, "slowed": slowed}


def check_idle(instance: Instance, client: TimedClient, timeout: float) -> None:
    """Wait until the instance has nothing to do. Raises BenchError."""
    quiet = wait_until_idle(lambda: read_load(client.request("GET", "/metrics", None, ANSWER)), timeout, SETTLE)
    load = quiet.load
    if load.gone or load.problem:
        raise BenchError(f"instance {instance.name} at {instance.target.url}: {load.problem}")
    if not quiet.idle:
        raise BenchError(
            f"instance {instance.name} has {load.running} running and {load.waiting} waiting requests, expected none; "
            "drain the host first (playbooks/drain.yml), or set bench_shared=true"
        )


def finished(client: TimedClient) -> int | None:
    """Return how many requests the instance has finished since its start, None if it does not report that."""
    return finished_requests(client.request("GET", "/metrics", None, ANSWER).body.decode(errors="replace"))


def cause_of(watch: Watch, instance: Instance, problem: BenchError) -> Exception:
    """Return the error to report: the end of the instance, where that is the cause of the problem."""
    first = watch.invocation
    died = watch.check()
    if not died and watch.invocation == first:
        return BenchError(f"instance {instance.name}: {problem}")
    lines = watch.unit.journal(first)
    why = redact_lines(reasons(lines) or lines, instance.secrets, 5)
    head = f"instance {instance.name} did not survive the measurement: {died or 'systemd has started it again'}."
    return DiedError(
        "\n".join([head, *(["The reason, from its journal:", *(f"  {line}" for line in why)] if why else [])])
    )


def main() -> None:
    module = start_module(DOCUMENTATION)
    try:
        measurement = measurement_of(module.params["measurement"])
        if module.params["timeout"] <= 0:
            raise BenchError(f"timeout: found {module.params['timeout']:g}, expected more than 0 seconds")
        if module.check_mode:
            module.exit_json(changed=False, skipped=True, msg="Not measured in check mode.")
        instance = read_instance(module.params["instance"], module.params["root"])
        module.no_log_values.update(instance.secrets)
        found = taken(module, instance, measurement)
    except DiedError as exc:
        module.fail_json(msg=str(exc), died=True)
    except (BenchError, UnitError) as exc:
        module.fail_json(msg=f"{exc}.")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
