#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: instance_adapters
short_description: (internal) Load and unload adapters in a running vLLM instance
description:
  - Makes a running engine have the LoRA adapters of its installed configuration, without a restart. It asks the engine
    which ones it has, loads those that are missing, replaces those at another path, and unloads the others.
  - No request is lost. Requests that run keep the weights that they began with, and new ones wait while an adapter is
    replaced.
  - Then it writes the SHA-256 of the configuration to C(/run/vllm/NAME/adapters), so that the instance does not count
    as one that runs with older files.
  - Does nothing where the unit of the instance is not active; it reads its configuration when it starts.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  adapters:
    description:
      - The adapters as in C(lora-modules) of the instance's arguments. In check mode they need not be in the file yet.
    type: raw
    default: []
  timeout:
    description: Seconds for all changes together.
    type: float
    default: 300
  config_dir:
    description: Directory with the files of the instances.
    type: path
    default: /etc/vllm
  run_dir:
    description: Directory with the runtime directories of the instances.
    type: path
    default: /run/vllm
notes:
  - Needs root (C(become)).
"""

EXAMPLES = "\n# roles/vllm/tasks/run.yml\n"

import platform

from ..module_utils.common.door import start_module
from ..module_utils.endpoint.client import AddressError
from ..module_utils.endpoint.instance_adapters_host import Instance, OptionError, result_of
from ..module_utils.instance.config_file import InstanceError
from ..module_utils.instance.operator_host import OperatorError
from ..module_utils.vllm.adapters import AdapterError, changes_of
from ..module_utils.vllm.unit import Unit, UnitError, mask


def main() -> None:
    module = start_module(DOCUMENTATION)
    where = f"{platform.node()}: instance {module.params['instance']}"
    secrets: list[str] = []

    def fail(text: str) -> None:
        module.fail_json(msg=mask(f"{where}: {text}", secrets))

    try:
        # One that starts has read its configuration, or will; the role finds out which and restarts it where needed.
        if Unit(f"vllm@{module.params['instance']}.service", module.run_command).state().active != "active":
            module.exit_json(**result_of(changes_of({}, {}), False))
        instance = Instance(module.params)
        secrets += instance.secrets
        if module.check_mode:
            module.exit_json(**result_of(changes_of(instance.engine().loaded(), instance.wanted), True))
    except (OptionError, AdapterError, AddressError, InstanceError, UnitError, OSError) as exc:
        fail(str(exc))
    try:
        changes = instance.apply()
    except (AdapterError, AddressError, OperatorError, InstanceError, OSError) as exc:
        fail(f"{exc}. {instance.describe_failure()}")
    module.exit_json(**result_of(changes, True))


if __name__ == "__main__":
    main()
