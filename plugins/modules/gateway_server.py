#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_server
short_description: Drain servers of a gateway and return them to service
version_added: 0.6.0
description:
  - Stops or resumes new requests to servers through the admin socket of the gateway's HAProxy, and records who asked
    for it and why. Running requests are completed.
  - Refuses to drain servers when too few of a service would stay. Only one run at a time changes a gateway, so two runs
    never drain the last two servers.
  - Drained servers stay drained over reloads and restarts of HAProxy.
  - Does not change servers that somebody else drained, see RV(held). A rollout takes over servers that a rollout
    drained, and an event those that an event drained. An admin takes over servers that were drained by an event or by
    hand at the admin socket, and returns those that any admin or event drained.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  servers:
    description: Names of servers, C(HOST--INSTANCE). With O(state=status) the default is all servers.
    type: list
    elements: str
    default: []
  hosts:
    description: Hosts whose servers are all selected. The name of a host must not be the name of another host followed
      by C(--) and more.
    type: list
    elements: str
    default: []
  groups:
    description: Instances that span several hosts, each as a list of the names that its servers may have. Those that
      the gateway has are selected; it must have one of each list. A host in O(hosts) that only takes part in such an
      instance needs no server of its own.
    type: list
    elements: list
    default: []
    version_added: 0.7.0
  state:
    description: V(status) changes nothing, V(drained) stops new requests, V(ready) resumes them.
    type: str
    choices: [status, drained, ready]
    default: status
  owner:
    description:
      - Who requests the change, V(rollout:ID), V(admin:USER) or V(event:NAME). Required unless O(state=status).
    type: str
    default: ""
  reason:
    description: Why, for people who read the record later.
    type: str
    default: ""
  min_available:
    description: How many servers of each service must stay ready and up. If fewer would stay, no server is drained.
      Servers that are down may always be drained.
    type: int
    default: 1
    version_added: 0.7.0
  force:
    description: Take over servers that somebody else drained.
    type: bool
    default: false
  wait:
    description: Seconds to wait until drained servers are idle, or until ready servers are up. After that RV(idle) or
      RV(up) is false, and the module does not fail.
    type: float
    default: 300
  watch:
    description: Seconds to watch servers that are ready and up. The module fails, and leaves them in service, when they
      answer with an error in that time or when their checks fail.
    type: float
    default: 0
  socket:
    description: Admin socket of HAProxy.
    type: path
    default: /run/haproxy/admin.sock
  config:
    description: Configuration of HAProxy.
    type: path
    default: /etc/haproxy/haproxy.cfg
  state_file:
    description: File from which HAProxy reads the state of its servers when it starts.
    type: path
    default: /var/lib/haproxy/server-state
  owners_file:
    description: File with the owners of drained servers. The next change rewrites a damaged file.
    type: path
    default: /var/lib/haproxy/drained.json
  arrivals_file:
    description: File in which the gateway counts how often the shared address has come to it.
    type: path
    default: /var/lib/haproxy/address-arrivals
    version_added: 0.7.0
  tool:
    description: The gateway's tool that saves the state of the servers.
    type: path
    default: /usr/local/lib/gateway-tool.py
  usage_file:
    description: The database of the gateway's tokens.
    type: path
    default: /var/lib/gateway-usage/usage.sqlite
    version_added: 0.12.0
notes:
  - Needs root (C(become)).
"""

EXAMPLES = r"""
- name: Drain a host for a new power supply
  baremetal.inference.gateway_server:
    hosts: [gpu-a-01]
    state: drained
    owner: admin:alice
    reason: new power supply
  become: true
  register: drained
  failed_when: not drained.idle

- name: Return it to service
  baremetal.inference.gateway_server:
    hosts: [gpu-a-01]
    state: ready
    owner: admin:alice
  become: true
"""

RETURN = r"""
servers:
  description:
    - The selected servers. C(state) is V(ready), V(drain) or V(maint), C(up) the result of the checks, C(why) the check
      that failed. C(owner), C(reason) and C(since) describe a drained server, and are empty for one that was drained
      by hand.
    - C(changed_s) is how long the server has been up or down, C(downs) how often it went down since RV(started).
    - C(requests), C(errors) (answers with 5xx, refused or broken connections, cut answers), C(retries) and
      C(redispatches) count since RV(started).
  type: dict
  returned: success
  sample:
    gpu-a-01--chat: {backend: chat, address: "10.0.0.5:8000", state: drain, up: true, why: "", sessions: 0, queued: 0,
                     changed_s: 86400, downs: 0,
                     owner: "admin:alice", reason: new power supply, since: "2026-11-22T03:01:00Z", requests: 812,
                     errors: 0, retries: 0, redispatches: 0}
held:
  description: Servers that were not changed because somebody else drained them, with C(owner), C(reason) and C(since).
  type: dict
  returned: success
idle:
  description:
    - Whether no request runs or waits on these servers, including requests in workers that a reload has replaced.
  type: bool
  returned: success
up:
  description: Whether all of these servers except those in RV(held) are ready and up.
  type: bool
  returned: success
waited_s:
  description: Seconds of waiting.
  type: float
  returned: success
backends:
  description: How many servers each service has, how many of them are ready and up, and how many requests wait for any
    of them.
  type: dict
  returned: success
  sample: {chat: {ready: 2, servers: 3, queued: 0}}
frontends:
  description: Requests of each service since RV(started), with C(ok), C(client_errors), C(server_errors) and C(denied).
  type: dict
  returned: success
address_arrivals:
  description: How often the shared address has come to this gateway; 0 without one.
  type: int
  returned: success
  version_added: 0.7.0
tokens_per_s:
  description: With C(gateway_tokens), the generated tokens of each model per second since the hour began.
  type: dict
  returned: O(state=status)
  version_added: 0.12.0
  sample: {openai/gpt-oss-120b: 1834.2}
planned_stops:
  description: How often servers went down because somebody asked for it - they were drained before, or systemd stopped
    their instance. C(downs) counts these too. Servers without any are left out.
  type: dict
  returned: O(state=status)
  sample: {gpu-a-01--chat: 2}
admission:
  description: With C(gateway_admission), by service, class and team since the last reload of HAProxy, how many requests
    run or wait (C(now)), came, waited and were refused, and the mean seconds until an answer of the class begins.
  type: list
  elements: dict
  returned: O(state=status)
  version_added: 0.10.0
  sample: [{service: chat, class: batch, team: nightly, now: 12, requests: 2000, waited: 300, refused: 930,
            first_answer_s: 4.2}]
scale:
  description: By service with C(scale), its replicas by state, how many requests wait, the last decision, and the
    servers that are stopped or asleep because the others are enough (C(idle)), with their hosts; empty at a gateway
    that does not decide.
  type: dict
  returned: O(state=status)
  version_added: 0.10.0
  sample: {chat: {min: 1, max: 4, mode: auto, waiting: 0, replicas: {serving: 1, stopped: 1},
                  last: "2026-11-28T03:01:00Z stop gpu-b--chat: 1 requests at once in 600 s, and 1 replicas take 11",
                  idle: [gpu-b--chat], hosts: [gpu-b]}}
started:
  description: A string that changes whenever the counters of HAProxy restart at zero.
  type: str
  returned: success
"""

import dataclasses
import time

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.gateway.admission_report_host import read_admission
from ..module_utils.gateway.drain_host import GatewayServers
from ..module_utils.gateway.haproxy_host import GatewayPaths
from ..module_utils.gateway.planned_stops_host import read_planned_stops
from ..module_utils.gateway.scale_report_host import read_report
from ..module_utils.gateway.server_report import diff_of, result_of
from ..module_utils.gateway.servers import RETURNED, STATUS, Selection, ServersError, ServersRequest, check_request
from ..module_utils.gateway.usage_host import tokens_per_second


@door(DOCUMENTATION)
def main(module: AnsibleModule) -> Result:
    options = module.params
    paths = GatewayPaths(**{each.name: options[each.name] for each in dataclasses.fields(GatewayPaths)})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    request = ServersRequest(
        options["state"], options["owner"], options["reason"], options["min_available"], options["force"], now
    )
    selection = Selection(options["servers"], options["hosts"], options["groups"])
    gateway = GatewayServers(paths)
    check_request(request, selection)
    outcome = gateway.change(selection, request, module.check_mode)
    if request.state != STATUS and not module.check_mode:
        gateway.wait(outcome, request, options["wait"])
    problem = ""
    if request.state == RETURNED and options["watch"] > 0 and not module.check_mode:
        try:
            gateway.watch(outcome, options["watch"])
        except ServersError as exc:
            problem = str(exc)
    for text in outcome.warnings:
        module.warn(text)
    diff = {"diff": diff_of(outcome, request, module.check_mode)} if module._diff and outcome.change.changed else {}
    if problem:
        module.fail_json(msg=problem, **result_of(outcome), **diff)
    more = {}
    if request.state == STATUS:
        more = {"scale": read_report(), "admission": read_admission(options["config"])}
        more["planned_stops"] = read_planned_stops({name: outcome.view.servers[name].downs for name in outcome.names})
        more["tokens_per_s"] = tokens_per_second(paths.usage_file, time.time())
    return {**result_of(outcome), **diff, **more}


if __name__ == "__main__":
    main()
