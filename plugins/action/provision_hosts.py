# SPDX-License-Identifier: GPL-3.0-or-later

from ..plugin_utils.provisioning.action import Run, ServersAction
from ..plugin_utils.provisioning.job import Job
from ..plugin_utils.provisioning.run import provision


class ActionModule(ServersAction):
    CHANGED = "written"
    WRITES = True

    def carry_out(self, jobs: list[Job], run: Run) -> list[Job]:
        provision(jobs, run.settings, run.world, run.check)
        return jobs
