# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, ClassVar

from ..module_utils.common.files_host import LockedError
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.common.yaml import UnreadableError
from ..plugin_utils.provisioning.entry import ProvisionError
from ..plugin_utils.provisioning.images import no_image, read_provisioner
from ..plugin_utils.provisioning.ironic import IronicError
from ..plugin_utils.provisioning.options import read_jobs, read_settings, real_world
from ..plugin_utils.provisioning.power_cycle import power_cycle
from ..plugin_utils.provisioning.states import DeadlineError
from ..plugin_utils.redfish.chips import RedfishError


class ActionModule(ControllerAction):
    """Switch all hosts of the play with such a fault off and on at once, in this process."""

    ERRORS: ClassVar[tuple[type[Exception], ...]] = (
        ProvisionError, DeadlineError, IronicError, RedfishError, UnreadableError, LockedError, OSError,
    )  # fmt: skip

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        settings = read_settings(options, read_provisioner(options["provisioner"]), writes=False)
        check = self._task.check_mode
        with contextlib.nullcontext() if check else settings.record_file.held(show):
            jobs = read_jobs(options["hosts"], variables["hostvars"], options, no_image, settings.record_file.read())
            power_cycle(jobs, options["faults"], Path(options["logs"]), settings, real_world(options, show), check)
        if check:
            show("\n".join(job.plan for job in jobs if job.plan and not job.outcome))
        return {
            "changed": any(job.outcome == "cycled" or (job.plan and not job.outcome) for job in jobs),
            "hosts": {job.entry.host: job.as_dict() for job in jobs},
        }
