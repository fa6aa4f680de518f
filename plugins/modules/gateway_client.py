#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_client
short_description: (internal) Make a client of the gateways with a key, or take one out of the inventory
description:
  - Adds the client with the sha256 of its key to the file of the inventory that sets C(gateway_clients), or removes it
    there. Only these lines change. If no file or several set it, or it has another form, the module shows what to
    change.
  - Shows a new key once, on the terminal of the run. The key is in no result, log, argument or file. Without a terminal
    the client makes its key, and O(sha256) names it.
  - Runs on the controller and connects to no host.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  make:
    description: Name of the new client.
    type: str
    default: ""
  end:
    description: Name of the client whose keys end.
    type: str
    default: ""
  clients:
    description: C(gateway_clients) as a gateway has it.
    type: raw
    default: {}
  teams:
    description: C(gateway_teams) as a gateway has it; a team of the new client is one of them, unless it is empty.
    type: raw
    default: {}
  team:
    description: Team of the new client.
    type: str
    default: ""
  expires:
    description: When its keys end, as C(expires) in C(gateway_clients).
    type: raw
    default: ""
  models:
    description: Names of the models that it may use; when empty, all models.
    type: list
    elements: str
    default: []
  rate:
    description: Allowed requests per minute; V(0) for no limit.
    type: int
    default: 0
  concurrent:
    description: Allowed concurrent requests; V(0) for no limit.
    type: int
    default: 0
  tokens_per_minute:
    description: Tokens that it may use in a minute; V(0) for no limit.
    type: int
    default: 0
  tokens_per_day:
    description: Tokens that it may use in a day; V(0) for no limit.
    type: int
    default: 0
  tokens_per_month:
    description: Tokens that it may use in a month; V(0) for no limit.
    type: int
    default: 0
  sha256:
    description: The sha256 of the key that the client has made itself.
    type: str
    default: ""
  write:
    description: Do it; otherwise only check the request.
    type: bool
    default: false
"""

EXAMPLES = "\n# playbooks/gateway_keys.yml\n"
