#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_server
short_description: Take servers of a gateway out of service and back in
version_added: 0.6.0
description:
  - Tells the HAProxy of a gateway over its admin socket to send no new requests to servers, or to send them again, and
    keeps who wanted that and why. Requests that run go on to their end.
  - Refuses to take servers out where a service would keep too few. Runs take turns at a gateway, so that two of them
    never take the last two servers.
  - What is drained stays so over reloads and restarts of HAProxy.
  - Leaves alone what somebody else has drained, see RV(held). A rollout takes over what a rollout has drained, and an
    admin what was drained at the socket by hand.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  servers:
    description:
      - Names of servers, C(HOST--INSTANCE). With O(state=status) all of them where neither this nor O(hosts) is given.
    type: list
    elements: str
    default: []
  hosts:
    description:
      - Hosts of which every server is meant, as the gateway knows them. The name of a host must not be that of another
        one with C(--) and more behind it.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(status) changes nothing, V(drained) lets no new requests come, V(ready) lets them come again.
    type: str
    choices: [status, drained, ready]
    default: status
  owner:
    description:
      - Who wants that, V(rollout:ID) or V(admin:USER). Required unless O(state=status).
    type: str
    default: ""
  reason:
    description:
      - Why, for those who look later.
    type: str
    default: ""
  min_available:
    description:
      - How many servers of each service must stay ready and up. If fewer would stay, no server is drained. Servers that
        are down may always be drained.
      - The name O(least) is deprecated and will be removed in 0.9.0.
    type: int
    default: 1
    aliases: [least]
    version_added: 0.7.0
  force:
    description:
      - Take what somebody else drained.
    type: bool
    default: false
  wait:
    description:
      - Seconds to wait until nothing runs on drained servers, or until HAProxy finds ready ones up. Where that takes
        longer, RV(idle) or RV(up) is false, and the module does not fail.
    type: float
    default: 300
  watch:
    description:
      - Seconds for which servers that are ready and up are looked at afterwards. The module fails, and leaves them in
        service, where they answer with an error in that time or their checks take them out.
    type: float
    default: 0
  socket:
    description:
      - Admin socket of HAProxy.
    type: path
    default: /run/haproxy/admin.sock
  config:
    description:
      - Configuration of HAProxy.
    type: path
    default: /etc/haproxy/haproxy.cfg
  state_file:
    description:
      - File that HAProxy takes the state of its servers from when it starts.
    type: path
    default: /var/lib/haproxy/server-state
  owners_file:
    description:
      - File that says who drained what. One that is damaged is written anew by the next change.
    type: path
    default: /var/lib/haproxy/drained.json
  tool:
    description:
      - The gateway's tool that keeps the state of the servers.
    type: path
    default: /usr/local/lib/gateway-tool.py
notes:
  - Needs root (C(become)).
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Take a host out of service for a new power supply
  baremetal.inference.gateway_server:
    hosts: [gpu-a-01]
    state: drained
    owner: admin:alice
    reason: new power supply
  become: true
  register: drained
  failed_when: not drained.idle

- name: Let it serve again
  baremetal.inference.gateway_server:
    hosts: [gpu-a-01]
    state: ready
    owner: admin:alice
  become: true
"""

RETURN = r"""
servers:
  description:
    - What is known of each server that is meant. C(state) is V(ready), V(drain) or V(maint), C(up) what its checks say,
      C(why) the check that says otherwise; C(owner), C(reason) and C(since) tell of a drained one, and are empty for
      one that was drained by hand.
    - C(requests), C(errors) (answers with 5xx, refused or broken connections, cut answers), C(retries) and
      C(redispatches) count since RV(started).
  type: dict
  returned: success
  sample:
    gpu-a-01--chat: {backend: chat, address: "10.0.0.5:8000", state: drain, up: true, why: "", sessions: 0, queued: 0,
                     owner: "admin:alice", reason: new power supply, since: "2026-11-22T03:01:00Z", requests: 812,
                     errors: 0, retries: 0, redispatches: 0}
held:
  description: Servers that were left alone since somebody else drained them, with C(owner), C(reason) and C(since).
  type: dict
  returned: success
idle:
  description:
    - Whether no request runs or waits on these servers, those in workers that a reload has replaced included.
  type: bool
  returned: success
up:
  description: Whether all of these servers are ready and up, but for those in RV(held).
  type: bool
  returned: success
waited_s:
  description: Seconds that were waited.
  type: float
  returned: success
backends:
  description: How many servers each service has, and how many of them are ready and up.
  type: dict
  returned: success
  sample: {chat: {ready: 2, servers: 3}}
frontends:
  description: Requests of each service since RV(started), with C(ok), C(client_errors), C(server_errors) and C(denied).
  type: dict
  returned: success
started:
  description: A text that is another one whenever the counters of HAProxy have begun at zero.
  type: str
  returned: success
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.drain_host import (
    GatewayServers,
    ServersOutcome,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.haproxy_host import GatewayPaths
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
    DRAINED,
    RETURNED,
    STATUS,
    ServersError,
    ServersRequest,
    check_request,
    describe_server,
    valid_record,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import HaproxyServer

ARGUMENTS = {
    "servers": {"type": "list", "elements": "str", "default": []},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["status", "drained", "ready"], "default": "status"},
    "owner": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "min_available": {
        "type": "int",
        "default": 1,
        "aliases": ["least"],
        "deprecated_aliases": [{"name": "least", "version": "0.9.0", "collection_name": "baremetal.inference"}],
    },
    "force": {"type": "bool", "default": False},
    "wait": {"type": "float", "default": 300},
    "watch": {"type": "float", "default": 0},
    "socket": {"type": "path", "default": GatewayPaths.socket},
    "config": {"type": "path", "default": GatewayPaths.config},
    "state_file": {"type": "path", "default": GatewayPaths.state_file},
    "owners_file": {"type": "path", "default": GatewayPaths.owners_file},
    "tool": {"type": "path", "default": GatewayPaths.tool},
}
FIGURES = ("backend", "address", "state", "up", "why", "sessions", "queued")
COUNTERS = ("requests", "errors", "retries", "redispatches")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    options = module.params
    paths = GatewayPaths(**{name: options[name] for name in ("socket", "config", "state_file", "owners_file", "tool")})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    request = ServersRequest(
        options["state"], options["owner"], options["reason"], options["min_available"], options["force"], now
    )
    gateway = GatewayServers(paths)
    try:
        check_request(request, options["servers"], options["hosts"])
        outcome = gateway.change(options["servers"], options["hosts"], request, module.check_mode)
        if request.state != STATUS and not module.check_mode:
            gateway.wait(outcome, request, options["wait"])
    except ServersError as exc:
        module.fail_json(msg=str(exc))
    problem = ""
    if request.state == RETURNED and options["watch"] > 0 and not module.check_mode:
        try:
            gateway.watch(outcome, options["watch"])
        except ServersError as exc:
            problem = str(exc)
    for text in outcome.warnings:
        module.warn(text)
    shown = {"diff": diff_of(outcome, request, module.check_mode)} if module._diff and outcome.change.changed else {}
    if problem:
        module.fail_json(msg=problem, **result_of(outcome), **shown)
    module.exit_json(**result_of(outcome), **shown)


def result_of(outcome: ServersOutcome) -> dict[str, Any]:
    """Return the values of a run."""
    view, (before, records) = outcome.view, outcome.before
    return {
        "changed": outcome.changed,
        "servers": {name: row_of(view.servers[name], outcome.records) for name in outcome.names},
        "held": {name: owner_of(before.servers[name], records) for name in outcome.change.held},
        "idle": outcome.idle(),
        "up": outcome.up(),
        "waited_s": round(outcome.waited, 3),
        "backends": view.backends(),
        "frontends": view.frontends,
        "started": view.started,
    }


def row_of(server: HaproxyServer, records: Any) -> dict[str, Any]:
    """Return what is told of a server."""
    return {
        **{name: getattr(server, name) for name in FIGURES},
        **owner_of(server, records),
        **{name: getattr(server, name) for name in COUNTERS},
    }


def owner_of(server: HaproxyServer, records: Any) -> dict[str, str]:
    """Return who drained a server, empty texts where nobody is known."""
    record = valid_record(server, records)
    return {name: record.get(name, "") for name in ("owner", "reason", "since")}


def diff_of(outcome: ServersOutcome, request: ServersRequest, check: bool) -> dict[str, str]:
    """Return a line for each server that changes, from before and from afterwards."""
    before, records = outcome.before
    after = outcome.view.servers
    lines = {"before": "", "after": ""}
    for name in outcome.change.changed:
        lines["before"] += f"{name}: {describe_server(before.servers[name], records)}\n"
        lines["after"] += (
            f"{name}: {planned(outcome, name, request) if check else describe_server(after[name], outcome.records)}\n"
        )
    return lines


def planned(outcome: ServersOutcome, name: str, request: ServersRequest) -> str:
    """Return how a server would be afterwards."""
    if request.state != DRAINED:
        return "ready"
    reason = f" ({request.reason})" if request.reason else ""
    word = "in maintenance" if outcome.change.records[name]["state"] == "maint" else "drained"
    return f"{word} by {request.owner}{reason}"


if __name__ == "__main__":
    main()
