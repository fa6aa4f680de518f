# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
name: verify_json
type: stdout
short_description: One JSON document of what the playbook verify found
version_added: 0.1.0
author:
  - the baremetal.inference authors (@baremetal-inference)
description:
  - Prints nothing while C(playbooks/verify.yml) runs, and one JSON document at its end.
  - C(tools/verify.py) runs the playbook with it. Warnings still go to the error output.
  - C(checks) has a row for each check of each instance, with C(host), C(instance), C(name), C(ok), C(seconds) and
    C(detail). A host that is not reached has one row named C(reach).
  - C(instances) has what was measured of each instance.
  - C(ok) is true when something was verified and all of it passed.
"""

from typing import Any

from ansible.plugins.callback import CallbackBase

from ..plugin_utils.common.output import read_result, show_json
from ..plugin_utils.fleet.verify_document import checks_of, document, instances_of


class CallbackModule(CallbackBase):
    """Collects results while the playbook runs and prints the document at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "baremetal.inference.verify_json"

    def __init__(self) -> None:
        super().__init__()
        self._checks: list[dict[str, Any]] = []
        self._instances: list[dict[str, Any]] = []

    def _collect(self, result: Any, failed: bool = False) -> None:
        host, _task, found = read_result(result)
        # Since 2.21 a result does not say whether it failed; Ansible calls another method.
        values = {"failed": failed, **found}
        self._checks += checks_of(host, values)
        self._instances += instances_of(host, values)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._collect(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: ARG002  Ansible's signature
        self._collect(result, failed=True)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._collect(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._collect(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002  Ansible's signature
        show_json(document(self._checks, self._instances))
