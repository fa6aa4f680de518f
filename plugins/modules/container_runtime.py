#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime
short_description: Decide what a host's container engine needs
version_added: 0.3.0
description:
  - Looks at a host's container engines, packages, package sources and files, and returns what has to be done so that
    the engine is as wanted and gives the host's accelerators to containers.
  - Fails with one sentence, before anything is changed, where that cannot be had, or where it would stop running
    containers without leave.
  - Changes nothing. The role P(baremetal.inference.container_runtime#role) carries out what it returns.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  system:
    description:
      - What is known of the operating system, as in the files of C(roles/container_runtime/vars/).
    type: dict
    required: true
  engine:
    description:
      - The engine that is wanted.
    type: str
    choices: [docker, podman]
    default: docker
  source:
    description:
      - Where its packages come from. Those of podman are the distribution's with each but V(none).
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  version:
    description:
      - Version of the engine. The newest that the source has when empty.
    type: str
    default: ""
  policy:
    description:
      - What is done with an engine that is there and is another than the wanted one; V(retain) leaves it alone,
        V(install) replaces it, V(halt) fails.
    type: str
    choices: [retain, install, halt]
    default: retain
  hold:
    description:
      - Keep docker's packages from unattended upgrades.
    type: bool
    default: true
  toolkit:
    description:
      - How accelerators reach containers. V(auto) is NVIDIA's container toolkit on C(cuda) and the plain devices on
        other stacks; V(vendor) is AMD's container toolkit on C(rocm) and the Ascend Docker Runtime on C(cann).
    type: str
    choices: [auto, vendor, none]
    default: auto
  stack:
    description:
      - The stack of the host's accelerators, as C(cuda), C(rocm), C(cann) or C(cpu).
    type: str
    default: cpu
  ascend_file:
    description:
      - The installer of the Ascend Docker Runtime, for O(toolkit=vendor) on C(cann).
    type: dict
    default: {}
    suboptions:
      url:
        description:
          - Its address, C(http), C(https) or C(file) of the host, that ends with the vendor's name of the file.
        type: str
      sha256:
        description:
          - Its SHA-256. A file with another one is not run.
        type: str
  ascend_licence_accepted:
    description:
      - Whether Huawei's licence of it is accepted, without which it is not run.
    type: bool
    default: false
  mirror_url:
    description:
      - With O(source=mirror), the address below which the vendors' hosts are mirrored by their names.
    type: str
    default: ""
  mirror_fingerprints:
    description:
      - With O(source=mirror), fingerprints of the keys that its repositories are signed with, where that are not the
        vendors' own.
    type: list
    elements: str
    default: []
  storage:
    description:
      - Directory of the engine's images and containers. Left as it is when empty.
    type: str
    default: ""
  registry_mirrors:
    description:
      - Mirrors of docker.io, as host or host:port.
    type: list
    elements: str
    default: []
  insecure_registries:
    description:
      - Registries that speak HTTP, or have a certificate that nobody has signed.
    type: list
    elements: str
    default: []
  restart_allowed:
    description:
      - Whether docker may be restarted while containers run.
    type: bool
    default: false
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Say what docker needs on this host
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
  description: Whether anything is to be done.
  type: bool
  returned: success
installs:
  description: Whether packages change.
  type: bool
  returned: success
plan:
  description: What is to be done, in parts that may be empty.
  type: dict
  returned: success
  contains:
    engine:
      description: The engine.
      type: str
    unit:
      description: Its unit; empty for podman, which is no daemon.
      type: str
    recover:
      description: Whether an installation was cut off and has to be ended first.
      type: bool
    mend:
      description: What ends it, each with C(argv), and C(may_fail) where the next one can do what it cannot.
      type: list
      elements: dict
    repositories:
      description: Package repositories with C(path), C(content) and C(key) (C(path), C(url), C(fingerprints)).
      type: list
      elements: dict
    enable:
      description: Repositories that are off between runs.
      type: list
      elements: str
    remove:
      description: Packages that must go.
      type: list
      elements: str
    release:
      description: Those of them that are held.
      type: list
      elements: str
    installers:
      description:
        - Files of a vendor's that are run, with C(name), C(url), C(path), C(sha256), C(argv), C(why),
          C(log), C(stdin) and C(scratch).
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
      description: Files that have to go.
      type: list
      elements: str
    units:
      description: Units to start and enable.
      type: list
      elements: str
    commands:
      description: Commands to run, each a list of words.
      type: list
      elements: list
    restart:
      description: Reasons for a restart of the engine.
      type: list
      elements: str
    reload:
      description: Reasons for the engine to read its file again, which no container notices.
      type: list
      elements: str
    notes:
      description: What a person may want to know.
      type: list
      elements: str
"""

import platform
from dataclasses import asdict, fields
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    POLICIES,
    SOURCES,
    TOOLKITS,
    Request,
    RuntimePlanError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.host import read_host
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.plan import plan_engine
from ansible_collections.baremetal.inference.plugins.module_utils.containers.engine import ENGINES


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "system": {"type": "dict", "required": True},
            "engine": {"type": "str", "choices": list(ENGINES), "default": "docker"},
            "source": {"type": "str", "choices": list(SOURCES), "default": "vendor"},
            "version": {"type": "str", "default": ""},
            "policy": {"type": "str", "choices": list(POLICIES), "default": "retain"},
            "hold": {"type": "bool", "default": True},
            "toolkit": {"type": "str", "choices": list(TOOLKITS), "default": "auto"},
            "stack": {"type": "str", "default": "cpu"},
            "ascend_file": {
                "type": "dict",
                "default": {},
                "options": {"url": {"type": "str"}, "sha256": {"type": "str"}},
            },
            "ascend_licence_accepted": {"type": "bool", "default": False},
            "mirror_url": {"type": "str", "default": ""},
            "mirror_fingerprints": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "storage": {"type": "str", "default": ""},
            "registry_mirrors": {"type": "list", "elements": "str", "default": []},
            "insecure_registries": {"type": "list", "elements": "str", "default": []},
            "restart_allowed": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}

    def run(words: Any) -> tuple[int, str, str]:
        # The managers of packages are read only; a program that is not there is no error of ours.
        result: tuple[int, str, str] = module.run_command(list(words), handle_exceptions=True)
        return result

    request = Request(**{field.name: module.params[field.name] for field in fields(Request)})
    system = module.params["system"]
    try:
        found = plan_engine(request, system, read_host(system["packager"], run, module.get_bin_path))
    except RuntimePlanError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}")
    module.exit_json(changed=False, changes=found.changes, installs=found.installs, plan=asdict(found))


if __name__ == "__main__":
    main()
