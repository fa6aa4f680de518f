#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_keys
short_description: (internal) Set the keys, limits and rights of a gateway's clients
description:
  - Writes the maps where HAProxy looks up keys, limits and rights, each in one step.
  - Sends the changes to a running HAProxy over its admin socket, so that keys change without a reload and without
    aborting an answer.
  - Handles keys only as sha256. Diffs name clients, never a hash of a key.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  clients:
    description:
      - All clients; a client that is not listed loses its access. Without this option and O(remove), nothing changes.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the client, also in the access log.
        type: str
        required: true
      sha256:
        description: The sha256 of each of its keys in hexadecimal digits.
        type: list
        elements: str
        required: true
      rate:
        description: Allowed requests per minute; V(0) for no limit.
        type: int
        default: 0
      concurrent:
        description: Allowed concurrent requests; V(0) for no limit.
        type: int
        default: 0
      services:
        description: Services that it may use; V(*) for all.
        type: list
        elements: str
        default: ["*"]
      ends:
        description: When its keys end, in seconds since 1970; V(0) for never.
        type: int
        default: 0
      team:
        description: The team whose tokens its own count as.
        type: str
        default: ""
  remove:
    description: A client that loses its access, while all others keep theirs.
    type: str
  directory:
    description: Directory of the maps.
    type: path
    default: /etc/haproxy/maps
  socket:
    description: Admin socket of HAProxy; ignored when it does not exist.
    type: path
    default: /run/haproxy/admin.sock
  group:
    description: Group that may read the maps.
    type: str
    default: haproxy
"""

EXAMPLES = "\n# roles/gateway/tasks/keys.yml\n"

from typing import Any

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.gateway.clients import Client, maps_of, maps_without
from ..module_utils.gateway.maps_host import client_lines, read_maps, update_maps


@door(DOCUMENTATION, mutually_exclusive=[("clients", "remove")])
def main(module: AnsibleModule) -> Result:
    options = module.params
    requested = requested_maps(options)
    only_read = options["clients"] is None and options["remove"] is None
    is_trial = module.check_mode or only_read
    found = update_maps(requested, options["directory"], options["socket"], options["group"], is_trial)
    diff = {"before": client_lines(found.before), "after": client_lines(found.after)} if module._diff else {}
    return {
        "changed": found.changed and not only_read,
        "added": found.differences["added"],
        "changed_clients": found.differences["changed"],
        "removed": found.differences["removed"],
        "present": found.present,
        "running": found.running,
        **({"diff": diff} if diff else {}),
    }


def requested_maps(options: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the maps that the options request. Raises MapsError."""
    if options["clients"] is None:
        return maps_without(read_maps(options["directory"]), options["remove"] or "")
    return maps_of(
        [
            Client(**{**entry, "sha256": tuple(entry["sha256"]), "services": tuple(entry["services"])})
            for entry in options["clients"]
        ]
    )


if __name__ == "__main__":
    main()
