#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: group_links
short_description: (internal) Try the network between the hosts of a group, and read what the kernel knows of it
description:
  - With O(listen=true) a process answers the other hosts at the addresses that vLLM will use. It answers nobody else
    and ends when each of them is done, at the latest after five minutes.
  - Otherwise it connects to each of the other hosts, compares the clocks, and tries with packets that must not be split
    whether the interface's size of packets works all the way. It also reads the RDMA devices, and settings of PCI
    bridges and of the IOMMU that slow down transfers between devices.
  - A host that is not reached is not an error of the module. M(baremetal.inference.group_report) judges the results.
  - Changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  groups:
    description: The groups of this host, by instance, as M(baremetal.inference.serve_plan) returns them.
    type: dict
    required: true
  port:
    description: The TCP and UDP port to listen on.
    type: int
    required: true
  listen:
    description: Whether to listen, in place of connecting.
    type: bool
    default: false
  chips:
    description: PCI addresses of the host's chips.
    type: list
    elements: str
    default: []
  sysfs_root:
    description: Directory of sysfs.
    type: path
    default: /sys
"""

EXAMPLES = "\n# roles/vllm/tasks/group_links.yml\n"

from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.vllm.fabric_host import interface_mtu, kernel_release, rdma_devices, redirecting_bridges, translated
from ..module_utils.vllm.links_host import LinkError, as_dict, fork_listener, listen, reach

# How long to listen at most.
SECONDS = 300.0


def main() -> None:
    module = start_module(DOCUMENTATION)
    groups, port = module.params["groups"], module.params["port"]
    if not module.params["listen"]:
        module.exit_json(changed=False, groups=links(module, groups, port), **fabric(module))
    addresses = sorted({group["address"] for group in groups.values()})
    peers = {peer for group in groups.values() for peer in group["peers"].values()}
    try:
        fork_listener(listen(addresses, port), peers, SECONDS)
    except LinkError as exc:
        module.fail_json(msg=f"{exc}; set vllm_group_check_port, or vllm_group_check: false")
    module.exit_json(changed=False)


def links(module: AnsibleModule, groups: dict[str, Any], port: int) -> dict[str, Any]:
    """Return what is known of the ways to the other hosts of each group."""
    found: dict[str, Any] = {}
    known: dict[Any, Any] = {}
    for name, group in groups.items():
        mtu = interface_mtu(group["interface"], module.params["sysfs_root"])
        for peer in group["peers"].values():
            way = (group["address"], peer)
            known[way] = known.get(way) or as_dict(reach(*way, port, mtu))
        ways = {host: known[group["address"], peer] for host, peer in group["peers"].items()}
        found[name] = {"mtu": mtu, "links": ways}
    return found


def fabric(module: AnsibleModule) -> dict[str, Any]:
    """Return what the kernel knows of RDMA devices, and of what slows them down."""
    sysfs = module.params["sysfs_root"]
    devices = rdma_devices(sysfs)
    functions = [*module.params["chips"], *(device["address"] for device in devices if device["address"])]
    return {
        "kernel": kernel_release(),
        "rdma": devices,
        "redirecting": redirecting_bridges(functions, sysfs),
        "translated": translated(functions, sysfs),
    }


if __name__ == "__main__":
    main()
