#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_adapters
short_description: (internal) Load and unload adapters in a running vLLM instance
version_added: 0.7.0
description:
  - Internal to the role P(baremetal.inference.vllm#role).
  - Makes a running engine have the LoRA adapters of its installed configuration, without a restart. It asks the engine
    which ones it has, loads those that are missing, replaces those at another path, and unloads the others.
  - No request is lost. Requests that run keep the weights that they began with, and new ones wait while an adapter is
    replaced.
  - Then it writes the SHA-256 of the configuration to C(/run/vllm/NAME/adapters), so that the instance does not count
    as one that runs with older files.
  - Does nothing where the unit of the instance is not active; it reads its configuration when it starts.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
    details:
      - Asks the engine which adapters it has.
  diff_mode:
    support: none
options:
  instance:
    description:
      - Name of the instance.
    type: str
    required: true
  adapters:
    description:
      - The adapters as in C(lora-modules) of the instance's arguments. In check mode they need not be in the file yet.
    type: raw
    default: []
  timeout:
    description:
      - Seconds for all changes together.
    type: float
    default: 300
  config_dir:
    description:
      - Directory with the files of the instances.
    type: path
    default: /etc/vllm
  run_dir:
    description:
      - Directory with the runtime directories of the instances.
    type: path
    default: /run/vllm
notes:
  - Needs root (C(become)).
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Load and unload adapters in the running instance
  baremetal.inference.instance_adapters:
    instance: chat
    adapters: ["sql=/srv/models/org/lora-sql/0123456789abcdef0123456789abcdef01234567"]
  become: true
"""

RETURN = r"""
asked:
  description: Whether the engine was asked; false where its unit is not active.
  type: bool
  returned: success
loaded:
  description: The adapters that were loaded, or would be in check mode.
  type: list
  elements: str
  returned: success
replaced:
  description: The adapters that had another path.
  type: list
  elements: str
  returned: success
unloaded:
  description: The adapters that were unloaded.
  type: list
  elements: str
  returned: success
"""

import hashlib
import os
import platform
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.common.foreign_files_host import ForeignDirectory
from ..module_utils.common.kinds import show_value
from ..module_utils.endpoint.adapters_host import EngineAdapters, describe_paths
from ..module_utils.endpoint.client import AddressError, TimedClient
from ..module_utils.instance.api_host import unverified_tls
from ..module_utils.instance.config_file import API_KEY, InstanceError, endpoint_of
from ..module_utils.instance.marks import APPLIED, OPERATOR_HEADER
from ..module_utils.instance.operator_host import OperatorError, operator_token
from ..module_utils.vllm.adapters import AdapterError, Changes, adapters_in, adapters_of, changes_of
from ..module_utils.vllm.installed_host import InstalledError, read_text, secrets_in, worth_masking
from ..module_utils.vllm.unit import Unit, UnitError, mask


class OptionError(Exception):
    """An option or a file of the instance cannot be used; the message is the whole clause."""


class Instance:
    """The instance that the options name, as its files describe it."""

    def __init__(self, params: dict[str, Any]) -> None:
        """Read the files. Raises OptionError, AdapterError, InstanceError and InstalledError."""
        self.name, self._timeout = params["instance"], params["timeout"]
        if not re.match(r"[A-Za-z0-9][\w.-]*\Z", self.name):
            raise OptionError(f"instance: found {show_value(self.name)}, expected a name such as chat")
        if self._timeout <= 0:
            raise OptionError(f"timeout: found {self._timeout:g}, expected more than 0")
        self.wanted = adapters_of(params["adapters"])
        self.config, self._env = (os.path.join(params["config_dir"], f"{self.name}.{kind}") for kind in ("yaml", "env"))
        self.directory = os.path.join(params["run_dir"], self.name)
        text = read_text(self.config)
        if text is None:
            raise OptionError(f"{self.config} is not there; run playbooks/site.yml")
        self._text = text
        secrets = secrets_in(params["config_dir"], self.name)
        self.secrets, self._key = worth_masking(secrets), secrets.get(API_KEY, "")

    def check_installed(self) -> None:
        """Raise AdapterError where the installed configuration has other adapters than the requested ones."""
        installed = adapters_in(self._text)
        if installed != self.wanted:
            raise AdapterError(
                f"{self.config} has the adapters {describe_paths(installed)}, expected {describe_paths(self.wanted)}; "
                "it was changed during this run: run it again"
            )

    def engine(self, token: str = "") -> EngineAdapters:
        """Return the engine that listens where the configuration says."""
        url, _models = endpoint_of(self._text)
        headers = {OPERATOR_HEADER: token} if token else {}
        client = TimedClient(url, self._key, unverified_tls() if url.startswith("https:") else None, headers)
        return EngineAdapters(client, self.directory, self._timeout)

    def apply(self) -> Changes:
        """Make the engine have the requested adapters, and note that it has them. Raises AdapterError."""
        self.check_installed()
        with operator_token(self.directory, os.stat(self._env).st_gid) as token:
            changes = self.engine(token).apply(self.wanted)
        digest = hashlib.sha256(self._text.encode()).hexdigest()
        ForeignDirectory(self.directory).replace(APPLIED, f"{digest}\n")
        return changes

    def describe_loaded(self) -> str:
        """Return the adapters that the engine has now, as a sentence."""
        try:
            return f"The engine has the adapters {describe_paths(self.engine().loaded())}."
        except AdapterError:
            return "Which adapters the engine has is unknown."

    def describe_failure(self) -> str:
        """Return what a failed change has left, and what to do."""
        return (
            f"{self.describe_loaded()} {self.config} has the new ones, and the next start or run of site.yml starts "
            "the engine with them: correct lora-modules of the instance and run site.yml again, which restarts it"
        )


def result_of(changes: Changes, asked: bool) -> dict[str, Any]:
    """Return the values of a run."""
    return {
        "changed": bool(changes),
        "asked": asked,
        "loaded": sorted(changes.load),
        "replaced": sorted(changes.replace),
        "unloaded": sorted(changes.unload),
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "adapters": {"type": "raw", "default": []},
            "timeout": {"type": "float", "default": 300},
            "config_dir": {"type": "path", "default": "/etc/vllm"},
            "run_dir": {"type": "path", "default": "/run/vllm"},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
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
    except (OptionError, AdapterError, AddressError, InstanceError, InstalledError, UnitError, OSError) as exc:
        fail(str(exc))
    try:
        changes = instance.apply()
    except (AdapterError, AddressError, OperatorError, InstanceError, OSError) as exc:
        fail(f"{exc}. {instance.describe_failure()}")
    module.exit_json(**result_of(changes, True))


if __name__ == "__main__":
    main()
