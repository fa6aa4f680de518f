# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path

from ..plugin_utils.provisioning.action import Run, ServersAction
from ..plugin_utils.provisioning.job import Job
from ..plugin_utils.provisioning.power_cycle import power_cycle, read_faults


class ActionModule(ServersAction):
    CHANGED = "cycled"

    def carry_out(self, jobs: list[Job], run: Run) -> list[Job]:
        faults, logs = read_faults(jobs, run.options["faults"]), Path(run.options["logs"])
        power_cycle(jobs, faults, logs, run.settings, run.world, run.check)
        return jobs
