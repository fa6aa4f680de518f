#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: endpoint
short_description: Wait for a vLLM endpoint and verify its answers
version_added: 0.1.0
description:
  - Waits until an OpenAI-compatible endpoint is ready, then asks what its model can answer, and fails when an answer is
    missing, empty, malformed or late. A model that chats is asked for chats (plain and streamed), a response and a
    completion, one of embeddings for vectors, and so on.
  - While it waits it watches the systemd unit of the server. When that dies, it fails at once with the reason and the
    last lines of the journal instead of waiting for the deadline.
  - A worker of an instance that spans hosts answers nobody. There it waits until the unit is active, which means that
    the worker has joined its head.
  - It changes nothing. It runs on the host that serves and needs no Python library there.
extends_documentation_fragment: baremetal.inference.attributes
attributes:
  check_mode:
    support: full
    details: On a host where the instance is not installed or its unit does not run, there is nothing to ask yet; the
      module then skips and returns the reason. A running one is verified as without check mode.
  diff_mode:
    support: none
    details: It changes nothing.
options:
  instance:
    description:
      - Name of an instance that the role P(baremetal.inference.vllm#role) has installed.
      - Address, served model names, unit and API key are read from O(config_dir)C(/NAME.yaml), C(vllm@NAME.service) and
        O(config_dir)C(/NAME.secrets) on the host. An address that stands for all interfaces becomes the loopback one.
      - O(url), O(model), O(unit), O(api_key) and O(api_key_file) go before what the files say.
    type: str
  config_dir:
    description: Directory with the files of O(instance).
    type: path
    default: /etc/vllm
  url:
    description: Address of the server, without a path such as C(/v1). Without O(instance) it is V(http://127.0.0.1:8000).
    type: str
  unit:
    description: Unit to watch, such as V(vllm@chat.service). Without it and without O(instance) no unit is watched.
    type: str
  model:
    description: Served model name that C(/v1/models) must list and that is asked. Required without O(instance).
    type: str
  checks:
    description:
      - What to ask, whatever their order here in that of the choices.
      - Without it and with O(instance), what fits the model, read from the files of its weights on the host and from
        the arguments of the instance. A text model is asked for C(chat), C(chat_stream), C(responses) and
        C(completions), with C(tool_call) if the instance parses calls and C(image) if it takes pictures; a base model
        without a chat template for C(completions) alone; others for the one check of their kind.
      - Without both, C(models), C(chat), C(chat_stream), C(responses) and C(completions).
    type: list
    elements: str
    choices:
      - models
      - chat
      - chat_stream
      - responses
      - completions
      - tool_call
      - image
      - embedding
      - rerank
      - classify
      - pooling
      - transcription
  prompt:
    description: What to ask in C(chat), C(chat_stream) and C(responses).
    type: str
    default: Is the fleet ready? Answer in one sentence.
  completion_prompt:
    description: Beginning of the text that C(completions) continues.
    type: str
    default: The fleet is
  expect:
    description: Text that each answer to O(prompt) must contain. Any text that is not blank passes without it.
    type: str
  max_tokens:
    description:
      - Limit of each answer in tokens. What a model thinks before it answers counts.
      - An answer that is still thinking at the limit is good, unless O(expect) is set.
    type: int
    default: 256
  remote_prefill:
    description: Whether an instance with prefill hosts has to have its prompts computed there. Chats and completions
      are then asked of its router, which answers none while no prefill host does.
    type: bool
    default: false
    version_added: 0.7.0
  api_key:
    description: API key of the server. It goes into the header of the requests and nowhere else.
    type: str
  api_key_file:
    description:
      - File on the host with the API key, for root only, as C(VLLM_API_KEY=...) among such lines or as its only line.
        A file with other lines only is one without a key.
      - Every value of the file is masked in the journal lines that are returned.
    type: path
  validate_certs:
    description:
      - Whether the certificate of an C(https) server must be valid for its address.
      - That of O(instance) on this host is not verified, unless O(ca_path) is given. Its process is checked instead.
    type: bool
    default: true
  ca_path:
    description: File with the certificates of the authorities that are trusted for an C(https) server, on the host.
    type: path
  ready_timeout:
    description: Seconds to wait until C(/health) answers 200. Where the variables of O(instance) have
      C(VLLM_ENGINE_READY_TIMEOUT_S), at least that and five minutes.
    type: float
    default: 600
  request_timeout:
    description: Seconds until an answer must be complete.
    type: float
    default: 60
  known_issues:
    description: What is known to go wrong with this model, as M(baremetal.inference.serve_plan) returns it. Where the
      journal of a server that died holds a symptom, the advice is part of the message.
    type: list
    elements: dict
    default: []
    suboptions:
      symptom:
        description: Text in the journal, in any case.
        type: str
        required: true
      advice:
        description: What to do.
        type: str
        required: true
  journal_lines:
    description: How many of the last journal lines of the unit to return on failure.
    type: int
    default: 20
notes:
  - Reading the secrets and the journal needs root (C(become)).
"""

EXAMPLES = r"""
- name: Verify an instance of the role vllm
  baremetal.inference.endpoint:
    instance: chat
  become: true

- name: Verify what the lab serves, answer included
  baremetal.inference.endpoint:
    instance: chat
    expect: The fleet is ready.
    ready_timeout: 120
  become: true

- name: Ask any OpenAI-compatible server for its models and a chat
  baremetal.inference.endpoint:
    url: http://127.0.0.1:9000
    model: openai/gpt-oss-20b
    checks: [models, chat]
    api_key_file: /etc/gateway.key
  become: true
"""

RETURN = r"""
ok:
  description: Whether everything passed; null when there was nothing to ask (check mode).
  returned: always
  type: bool
msg:
  description: On failure what was asked, what came back, the unit's state, and why it died or, where the journal has no
    reason, its last lines. Else one line.
  returned: always
  type: str
url:
  description: The address that was asked; on a worker of an instance that spans hosts nothing listens there.
  returned: always, unless an option was refused
  type: str
model:
  description: The model name that was asked.
  returned: always, unless an option was refused
  type: str
unit:
  description: The unit that was watched.
  returned: always, unless an option was refused
  type: str
checks:
  description: The wait (C(ready)) and each check that was made, in order.
  returned: when the endpoint was waited for
  type: list
  elements: dict
  contains:
    name:
      description: V(ready) or one of the O(checks).
      type: str
    ok:
      description: Whether it passed.
      type: bool
    seconds:
      description: How long it took.
      type: float
    detail:
      description: What came back, or what was wrong with it.
      type: str
doubts:
  description: What is odd about answers that passed, such as a text in place of the tool call that was asked for. Each
    one is a warning too.
  returned: when checks were made
  type: list
  elements: str
answer:
  description: The text of the first chat, stream or response that passed.
  returned: when one passed
  type: str
ready_after_s:
  description: Seconds until C(/health) answered.
  returned: when it did
  type: float
time_to_first_token_s:
  description: Seconds from before the connection until the first chunk with text, reasoning included.
  returned: when C(chat_stream) passed
  type: float
tokens_per_second:
  description: The completion tokens that the server counted, by the seconds until the last chunk of the answer.
  returned: when C(chat_stream) passed
  type: float
reasons:
  description: Lines of the journal that say why the server died, the cause first.
  returned: on failure with a unit
  type: list
  elements: str
journal:
  description: Last lines of the journal of the invocation that failed, secrets masked.
  returned: on failure with a unit
  type: list
  elements: str
"""


from ..module_utils.common.door import start_module
from ..module_utils.common.spelling import nearest
from ..module_utils.endpoint.ready import Watch
from ..module_utils.endpoint.target_host import Endpoint, OptionError
from ..module_utils.endpoint.verification_host import failure_of, nothing_to_ask, result_of, verify
from ..module_utils.instance.config_file import InstanceError
from ..module_utils.instance.config_host import NotInstalledError, names_in
from ..module_utils.vllm.unit import UnitError, explain_lost


def main() -> None:
    module = start_module(
        DOCUMENTATION,
        secret=("api_key",),
        required_one_of=[("instance", "model")],
        mutually_exclusive=[("api_key", "api_key_file")],
    )
    try:
        endpoint = Endpoint(module.params, module.run_command, module.no_log_values)
        nothing = nothing_to_ask(endpoint) if module.check_mode else ""
        if nothing:
            module.exit_json(changed=False, skipped=True, ok=None, msg=f"Not verified: {nothing}.", **endpoint.facts())
        watch = Watch(endpoint.unit) if endpoint.unit else None
        wait, findings = verify(endpoint, watch)
        result = result_of(endpoint, wait, findings)
        if not result["ok"]:
            result.update(failure_of(endpoint, watch, result))
    except NotInstalledError as exc:
        problem = f"{exc}; {nearest(module.params['instance'], names_in(module.params['config_dir']))}"
        if module.check_mode:
            module.exit_json(changed=False, skipped=True, ok=None, msg=f"Not verified: {problem}.")
        module.fail_json(ok=False, msg=f"{problem}.")
    except (InstanceError, OptionError, UnitError) as exc:
        module.fail_json(ok=False, msg=f"{exc}.")
    lost = explain_lost(watch.now) if watch else ""
    if watch and lost:
        module.warn(f"unit {watch.unit.name} {lost}")
    for doubt in result.get("doubts", []):
        module.warn(f"{result['model']} at {result['url']}: {doubt}")
    if not result["ok"]:
        module.fail_json(changed=False, **result)
    passed = f"{result['model']} at {result['url']} passes {len(result['checks'])} checks"
    if endpoint.worker:
        passed = f"{result['model']}: this worker has joined its head, which answers for it"
    module.exit_json(changed=False, msg=passed, **result)


if __name__ == "__main__":
    main()
