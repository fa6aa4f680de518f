# SPDX-License-Identifier: GPL-3.0-or-later

import re
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.accelerator.recognition import AcceleratorError
from ..plugin_utils.adopt.answer import AdoptRequest, answer
from ..plugin_utils.adopt.redaction import redact
from ..plugin_utils.adopt.shell import CommandError
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.fleet.trial import TrialError
from ..plugin_utils.options.table import OptionTableError
from ..plugin_utils.planning.inputs import PlanError


class ActionModule(ControllerAction):
    """Prints the entry that means the same as a command."""

    ERRORS = (AcceleratorError, CommandError, OptionTableError, PlanError, TrialError)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        request = AdoptRequest(**options)
        text = ""
        try:
            text = request.text()
            found = redact(answer(request, text), text)
        except self.ERRORS as exc:
            message = re.sub("^accelerators: ", "adopt_accelerator: ", str(exc))
            raise AnsibleActionFail(redact(message, text)) from None
        show(found.pop("text"))
        return {**found}
