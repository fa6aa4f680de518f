#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_bench_info
short_description: (internal) Read what a benchmark needs to know about a vLLM instance
description:
  - Asks an instance of the role P(baremetal.inference.vllm#role) for its longest sequence and its present load, and
    reads how long its last start took and the power limit of its chips. It fails where the instance does not run.
  - It changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  stack:
    description: The stack of its chips, which decides whose tool reports their power.
    type: str
    default: cpu
  chips:
    description: The numbers of its chips on the host.
    type: list
    elements: int
    default: []
  root:
    description: Root of the host's files; for tests.
    type: path
    default: /
notes:
  - Reading the secrets needs root (C(become)).
"""

EXAMPLES = "\n# plugins/action/bench_run.py\n"

from typing import Any

from ..module_utils.bench.answers import model_length, start_seconds
from ..module_utils.bench.measurement import BenchError
from ..module_utils.bench.run_host import Chips, read_power
from ..module_utils.bench.target_host import Instance, read_instance
from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.endpoint.idle import read_load
from ..module_utils.vllm.unit import Unit, UnitError

ANSWER = 10.0
TIMES = "InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic"


def inspect(module: AnsibleModule, instance: Instance, chips: Chips) -> dict[str, Any]:
    """Return the values of a run. Raises BenchError and UnitError."""
    unit = Unit(f"vllm@{instance.name}.service", module.run_command)
    state = unit.state()
    if state.active != "active":
        raise BenchError(f"instance {instance.name} does not serve: {unit.name} is {state}; start it first")
    client = instance.client()
    models = client.request("GET", "/v1/models", None, ANSWER)
    if models.status != 200 or models.failure:
        found = models.failure or f"GET /v1/models answered {models.status}"
        raise BenchError(f"instance {instance.name} at {instance.target.url}: {found}")
    load = read_load(client.request("GET", "/metrics", None, ANSWER))
    if load.problem:
        raise BenchError(f"instance {instance.name} at {instance.target.url}: {load.problem}")
    times = module.run_command(["systemctl", "show", "--no-pager", f"--property={TIMES}", "--", unit.name])[1]
    power = read_power(chips)
    return {
        "url": instance.target.url,
        "model": instance.target.model,
        "max_model_len": model_length(models.body, instance.target.model),
        "running": load.running,
        "waiting": load.waiting,
        "start_seconds": start_seconds(times),
        "power_limit_watts": power.limit if power else 0.0,
        "has_power": power is not None,
    }


def main() -> None:
    module = start_module(DOCUMENTATION)
    try:
        instance = read_instance(module.params["instance"], module.params["root"])
        module.no_log_values.update(instance.secrets)
        found = inspect(module, instance, Chips(module.params["stack"], tuple(module.params["chips"])))
    except (BenchError, UnitError) as exc:
        module.fail_json(msg=f"{exc}.")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
