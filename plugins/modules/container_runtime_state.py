#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime_state
short_description: (internal) Inspect the container engines of a host
version_added: 0.7.0
description:
  - Internal to the module M(baremetal.inference.container_runtime).
  - Reads the container engines, their packages, package sources, keys and files, and the drivers that are loaded.
  - Decides nothing and changes nothing. Credentials in files stay on the host.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
options:
  packager:
    description:
      - The package format of this system.
    type: str
    choices: [deb, rpm]
    required: true
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Inspect the container engines
  baremetal.inference.container_runtime_state:
    packager: deb
  become: true
  register: engines
"""

RETURN = r"""
host:
  description: The state of the host, from which the module M(baremetal.inference.container_runtime) plans.
  type: dict
  returned: success
  contains:
    architecture:
      description: The processor, as C(uname -m) prints it.
      type: str
    engines:
      description:
        - The engines by name, with C(command), C(version), C(why) it does not answer, running C(containers), C(root) of
          the storage, and the settings that it runs with.
      type: dict
    packages:
      description: Versions of the installed packages that matter to a plan.
      type: dict
    unfinished:
      description: Packages whose installation was interrupted, with their dpkg status.
      type: dict
    held:
      description: Packages that are held.
      type: list
      elements: str
    files:
      description: Texts of podman's and udev's configuration files by path, empty where only the existence matters.
      type: dict
    daemon_json:
      description: The keys of docker's C(daemon.json) that the role sets, without credentials.
      type: dict
    daemon_json_error:
      description: Why docker cannot read its C(daemon.json), empty where it can.
      type: str
    sources:
      description: Texts of the package sources that name a vendor's host, by path and without credentials.
      type: dict
    keys:
      description: Fingerprints of keyring files by path.
      type: dict
    active:
      description: Units that run now and at boot.
      type: list
      elements: str
    drivers:
      description: Stacks whose driver is loaded.
      type: list
      elements: str
    unlinked:
      description: NVIDIA's device nodes without a link below C(/dev/char).
      type: list
      elements: str
    cdi_kinds:
      description: Kinds of devices that have a CDI specification.
      type: list
      elements: str
    apparmor:
      description: Whether the kernel has AppArmor.
      type: bool
    ascend:
      description: Version of the Ascend Docker Runtime, empty where it is missing or incomplete.
      type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.container_runtime.host import read_host


def main() -> None:
    module = AnsibleModule(
        argument_spec={"packager": {"type": "str", "choices": ["deb", "rpm"], "required": True}},
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}

    def run(words: Any) -> tuple[int, str, str]:
        # Package managers are only queried; a missing program is not an error here.
        result: tuple[int, str, str] = module.run_command(list(words), handle_exceptions=True)
        return result

    module.exit_json(changed=False, host=read_host(module.params["packager"], run, module.get_bin_path).as_dict())


if __name__ == "__main__":
    main()
