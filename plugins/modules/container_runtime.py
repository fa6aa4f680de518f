#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: container_runtime
short_description: Decide what a host's container engine needs
version_added: 0.3.0
description:
  - Reads a host's container engines, packages, package sources and files, and returns the steps that make the engine
    match the request and give the host's accelerators to containers.
  - Fails before anything is changed where the request cannot be met, or where it would stop running containers without
    permission.
  - Changes nothing. The role P(baremetal.inference.container_runtime#role) carries out the returned steps.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  system:
    description: The description of the operating system, as in the files of C(roles/container_runtime/vars/).
    type: dict
    required: true
  engine:
    description: The requested engine.
    type: str
    choices: [docker, podman]
    default: docker
  source:
    description: Where the engine's packages come from. podman comes from the distribution with each source but V(none).
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  version:
    description: Version of the engine. The newest of the source when empty.
    type: str
    default: ""
  policy:
    description: What to do with an installed engine that differs from the requested one; V(retain) keeps it, V(install)
      replaces it, V(halt) fails.
    type: str
    choices: [retain, install, halt]
    default: retain
  hold:
    description: Keep docker's packages from unattended upgrades.
    type: bool
    default: true
  toolkit:
    description: How containers reach the accelerators. V(auto) is NVIDIA's container toolkit on C(cuda) and the plain
      devices on other stacks; V(vendor) is AMD's container toolkit on C(rocm) and the Ascend Docker Runtime on C(cann).
    type: str
    choices: [auto, vendor, none]
    default: auto
  stack:
    description: The stack of the host's accelerators, as C(cuda), C(rocm), C(cann) or C(cpu).
    type: str
    default: cpu
  ascend_file:
    description: The installer of the Ascend Docker Runtime, for O(toolkit=vendor) on C(cann).
    type: dict
    default: {}
    suboptions:
      url:
        description: Its URL, C(http), C(https) or C(file) on the host, which ends with the vendor's file name.
        type: str
      sha256:
        description: Its SHA-256. A file with another checksum is not run.
        type: str
  ascend_licence_accepted:
    description: Whether Huawei's licence is accepted. Without it the installer is not run.
    type: bool
    default: false
  mirror_url:
    description: With O(source=mirror), the address below which it mirrors the vendors' hosts by their names.
    type: str
    default: ""
  mirror_fingerprints:
    description:
      - With O(source=mirror), fingerprints of the keys that sign its repositories, if these are not the vendors' keys.
    type: list
    elements: str
    default: []
  storage:
    description: Directory of the engine's images and containers. Unchanged when empty.
    type: str
    default: ""
  registry_mirrors:
    description: Mirrors of docker.io, as host or host:port.
    type: list
    elements: str
    default: []
  insecure_registries:
    description: Registries that use plain HTTP or an untrusted certificate.
    type: list
    elements: str
    default: []
  restart_allowed:
    description: Whether docker may be restarted while containers run.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Plan docker on this host
  baremetal.inference.container_runtime:
    system: "{{ __container_runtime_system }}"
    engine: docker
    source: distro
    stack: cuda
  become: true
  register: plan
"""

RETURN = r"""
changes:
  description: Whether there is anything to do.
  type: bool
  returned: success
installs:
  description: Whether packages change.
  type: bool
  returned: success
plan:
  description: The steps; each part may be empty.
  type: dict
  returned: success
  contains:
    engine:
      description: The engine.
      type: str
    unit:
      description: Its systemd unit; empty for podman, which has no daemon.
      type: str
    recover:
      description: Whether an interrupted installation must be completed first.
      type: bool
    mend:
      description: Commands that complete it, each with C(argv), and C(may_fail) where the next one repairs the rest.
      type: list
      elements: dict
    repositories:
      description: Package repositories with C(path), C(content) and C(key) (C(path), C(url), C(fingerprints)).
      type: list
      elements: dict
    enable:
      description: Repositories that stay disabled between runs.
      type: list
      elements: str
    remove:
      description: Packages to remove.
      type: list
      elements: str
    release:
      description: Packages to remove that are held.
      type: list
      elements: str
    installers:
      description: Vendor installers to run, with C(name), C(url), C(path), C(sha256), C(argv), C(why), C(log), C(stdin)
        and C(scratch).
      type: list
      elements: dict
    toolkit:
      description: Packages of the vendor's container toolkit.
      type: list
      elements: str
    packages:
      description: Packages of the engine.
      type: list
      elements: str
    hold:
      description: Packages to keep from upgrades.
      type: list
      elements: str
    files:
      description: Files with C(path), C(content) and C(mode).
      type: list
      elements: dict
    absent:
      description: Files to remove.
      type: list
      elements: str
    units:
      description: Units to start and enable.
      type: list
      elements: str
    commands:
      description: Commands to run, each a list of arguments.
      type: list
      elements: list
    restart:
      description: Reasons for a restart of the engine.
      type: list
      elements: str
    reload:
      description: Reasons to reload the engine, which does not affect containers.
      type: list
      elements: str
    notes:
      description: Notes for the user.
      type: list
      elements: str
"""
# The action plugin of the same name does the work; on the host it runs the module container_runtime_state.
