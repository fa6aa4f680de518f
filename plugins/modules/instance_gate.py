#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: instance_gate
short_description: (internal) Ask a vLLM instance a fixed set of prompts and measure it
description:
  - Warms an instance of the role P(baremetal.inference.vllm#role), asks it prompts whose answers are known, and
    measures tokens per second and the time to the first token of streamed chats. It fails where an answer is not the
    expected one, or where a figure is worse than a share of that of an earlier run.
  - A model that does not chat, such as one of embeddings, is asked nothing and not measured; C(verdicts) reports it.
    M(baremetal.inference.endpoint) asks it what it can answer.
  - It is meant for an instance that serves nobody else at the time; requests of others would be measured with it.
  - It changes nothing. It runs on the host that serves, asks the instance at its own address and needs no Python
    library there. That the instance is ready is waited for by M(baremetal.inference.endpoint).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description: Name of the instance. Address, served model name and API key are read from O(config_dir)C(/NAME.yaml)
      and O(config_dir)C(/NAME.secrets).
    type: str
    required: true
  config_dir:
    description: Directory with the files of O(instance).
    type: path
    default: /etc/vllm
  checks:
    description: What the instance can answer, as O(baremetal.inference.endpoint#module:checks) has it; without it, what
      fits its model. Nothing is asked or measured unless V(chat_stream) is among it.
    type: list
    elements: str
  prompts:
    description: What is asked, one after the other, with temperature 0. Each one is a dictionary with C(prompt);
      C(expect), a text that the answer must contain, or C(expect_any), a list of texts of which it must contain one
      (without either any text will do); C(system), a system message; and C(max_tokens), by default 256, in which what a
      model thinks before it answers counts.
    type: list
    elements: dict
    default: []
  warm:
    description: Requests before anything is asked or measured; the first ones after a start are slow.
    type: int
    default: 2
  measure:
    description:
      - What is measured. C(prompts), by default 8, is the number of streamed chats, C(streams), by default 4, how many
        of them run at a time, C(max_tokens), by default 64, the limit of each answer. With C(prompts) 0 nothing is
        measured.
      - C(ignore_eos), by default V(false), makes the model write C(max_tokens) even if its answer would end earlier, so
        that there is more to measure of one that answers in a few tokens. What it says then may be no answer that the
        server can read, and the stream would fail; try it before.
      - The prompts are of about 25 tokens and differ each time, so that no cache of prefixes answers them.
    type: dict
    default: {}
  baseline:
    description:
      - C(figures) of an earlier run. Empty, the instance is only measured.
      - Figures that were measured with another C(streams), C(prompts), C(max_tokens), or C(ignore_eos) are not
        compared, and C(verdicts) gives the reason.
    type: dict
    default: {}
  throughput_share:
    description: The measured tokens per second must be at least this share of those of O(baseline).
    type: float
    default: 0.8
  first_token_share:
    description: The median time to the first token of O(baseline), divided by the measured one, must be at least this;
      50 ms more are always good.
    type: float
    default: 0.8
  tries:
    description:
      - How often is measured until the figures are good enough. The best measurement counts.
      - Figures that are compared with no O(baseline) are good enough when those of two measurements differ by at most
        a tenth. They become the baseline of later ones, and one that other work of the host disturbed would let a slow
        instance pass.
    type: int
    default: 3
  pause:
    description: Seconds before a measurement that fell short is made again, or one that differs from that before it.
    type: float
    default: 5
  request_timeout:
    description: Seconds until an answer must be complete.
    type: float
    default: 60
notes:
  - Reading the secrets needs root (C(become)).
"""

EXAMPLES = "\n# roles/rollout/tasks/apply.yml\n"


from ..module_utils.common.door import start_module
from ..module_utils.endpoint.gates import GateError
from ..module_utils.endpoint.instance_gates_host import Instance, asked, gates_of
from ..module_utils.instance.config_file import InstanceError
from ..module_utils.instance.config_host import NotInstalledError


def main() -> None:
    module = start_module(DOCUMENTATION)
    try:
        gates = gates_of(module.params)
        instance = Instance(module.params["instance"], module.params["config_dir"], module.params["checks"])
        module.no_log_values.update(instance.secrets)
        if module.check_mode and instance.client.request("GET", "/health", None, 5).status != 200:
            reason = f"Not asked: instance {instance.name} does not answer at {instance.url}."
            module.exit_json(changed=False, skipped=True, passed=None, msg=reason, **instance.facts())
        result = asked(instance, gates, module.params["request_timeout"])
    except NotInstalledError as exc:
        if module.check_mode:
            module.exit_json(changed=False, skipped=True, passed=None, msg=f"Not asked: {exc}.")
        module.fail_json(msg=f"{exc}.")
    except (GateError, InstanceError) as exc:
        module.fail_json(msg=f"{exc}.")
    if not result["passed"]:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
