# SPDX-License-Identifier: GPL-3.0-or-later

from ..plugin_utils.provisioning.action import Run, ServersAction
from ..plugin_utils.provisioning.deprovision import deprovision
from ..plugin_utils.provisioning.job import Job
from ..plugin_utils.provisioning.options import with_disks
from ..plugin_utils.provisioning.remains import show_remains


class ActionModule(ServersAction):
    CHANGED = "removed"

    def carry_out(self, jobs: list[Job], run: Run) -> list[Job]:
        jobs = with_disks(jobs, run.options["disks"], run.options["secure"], run.provisioner.wipes)
        deprovision(jobs, run.settings, run.world, run.check)
        show_remains(jobs, run.variables, run.world)
        return jobs
