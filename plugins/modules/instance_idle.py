#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_idle
short_description: Wait until a vLLM instance has nothing to do
version_added: 0.6.0
description:
  - Reads the metrics of an instance until no request has run or waited for O(settle) seconds.
  - Changes nothing, and does not fail when the instance stays busy; see RV(idle).
  - An instance whose unit is not active counts as idle.
extends_documentation_fragment: baremetal.inference.attributes
attributes:
  check_mode:
    support: full
    details: Reads the metrics once and does not wait.
  diff_mode:
    support: none
options:
  instance:
    description: Name of the instance of the role P(baremetal.inference.vllm#role).
    type: str
    required: true
  timeout:
    description: Seconds to wait.
    type: float
    default: 300
  settle:
    description: Seconds for which it must stay idle.
    type: float
    default: 1
  config_dir:
    description: Directory with the files of the instances.
    type: path
    default: /etc/vllm
notes:
  - Reading the files needs root (C(become)).
"""

EXAMPLES = r"""
- name: Wait until the instance has answered all requests
  baremetal.inference.instance_idle:
    instance: chat
    timeout: 600
  become: true
  register: quiet
"""

RETURN = r"""
idle:
  description: Whether nothing runs or waits on it.
  type: bool
  returned: success
asked:
  description: Whether its metrics were read; false where its unit is not active.
  type: bool
  returned: success
running:
  description: Running requests.
  type: int
  returned: success
waiting:
  description: Waiting requests.
  type: int
  returned: success
problem:
  description: Why its metrics could not be read; empty where they could.
  type: str
  returned: success
waited_s:
  description: Seconds that the wait took.
  type: float
  returned: success
"""


from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.endpoint.client import AddressError, TimedClient
from ..module_utils.endpoint.idle import EngineLoad, IdleWait, read_load, wait_until_idle
from ..module_utils.instance.config_file import InstanceError
from ..module_utils.instance.config_host import NotInstalledError, endpoint_in
from ..module_utils.instance.listener_host import processes_of
from ..module_utils.vllm.unit import Unit

# A healthy engine reads its sockets within seconds.
ANSWER = 5.0
ACTIVE = ("active", "activating", "deactivating", "reloading")


@door(DOCUMENTATION)
def main(module: AnsibleModule) -> Result:
    options = module.params
    unit = Unit(f"vllm@{options['instance']}.service", module.run_command)
    if unit.state().active not in ACTIVE:
        return result_of(IdleWait(True, EngineLoad(), 0.0), False)
    client = client_of(options["instance"], options["config_dir"])

    def read() -> EngineLoad:
        """Read the load of the instance; one that was stopped in the meantime is idle."""
        load = read_load(client.request("GET", "/metrics", None, ANSWER))
        return EngineLoad(gone=True) if load.problem and unit.state().active not in ACTIVE else load

    timeout, settle = (0.0, 0.0) if module.check_mode else (options["timeout"], options["settle"])
    return result_of(wait_until_idle(read, timeout, settle), True)


class OptionError(Exception):
    """The files of the instance cannot be used; the message is the whole sentence."""


def client_of(instance: str, config_dir: str) -> TimedClient:
    """Return a client of the instance, at the address of its files. Raises OptionError."""
    try:
        url, _models = endpoint_in(config_dir, instance)
        return TimedClient(url, expected=processes_of(instance))
    except NotInstalledError as exc:
        raise OptionError(f"vllm@{instance}.service runs, but {exc}; run playbooks/site.yml") from exc
    except (InstanceError, AddressError) as exc:
        raise OptionError(str(exc)) from exc


def result_of(quiet: IdleWait, asked: bool) -> dict[str, object]:
    """Return the values of a run."""
    load = quiet.load
    return {
        "changed": False,
        "idle": quiet.idle,
        "asked": asked,
        "running": load.running,
        "waiting": load.waiting,
        "problem": load.problem,
        "waited_s": round(quiet.seconds, 3),
    }


if __name__ == "__main__":
    main()
