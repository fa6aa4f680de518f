# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that work on all hosts of the play at once, in this process."""

import contextlib
from typing import Any, ClassVar, Mapping, NamedTuple

from ..common.action import ControllerAction
from ..common.output import show
from .images import Provisioner, no_image, read_provisioner
from .job import Job, Settings, World
from .options import read_jobs, read_settings, real_world


class Run(NamedTuple):
    """What the jobs of a run have in common."""

    options: Mapping[str, Any]
    variables: Mapping[str, Any]
    provisioner: Provisioner
    settings: Settings
    world: World
    check: bool


class ServersAction(ControllerAction):
    """Read the jobs of all hosts, carry them out, and return what has become of each.

    ``CHANGED`` is the outcome of a host that was changed. ``WRITES`` is whether images are written.
    """

    ERRORS = (OSError,)
    CHANGED: ClassVar[str]
    WRITES: ClassVar[bool] = False

    def carry_out(self, jobs: list[Job], run: Run) -> list[Job]:
        """Return the jobs, each with its outcome, or in check mode with a plan."""
        raise NotImplementedError

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        provisioner = read_provisioner(options["provisioner"])
        settings = read_settings(options, provisioner, self.WRITES)
        image_of = provisioner.image_of if self.WRITES else no_image
        check = self._task.check_mode
        with contextlib.nullcontext() if check else settings.record_file.held(show):
            jobs = read_jobs(options["hosts"], variables["hostvars"], options, image_of, settings.record_file.read())
            jobs = self.carry_out(
                jobs, Run(options, variables, provisioner, settings, real_world(options, show), check)
            )
        if check:
            show("\n".join(job.plan for job in jobs if job.plan and not job.outcome))
        return {
            "changed": any(job.outcome == self.CHANGED or (job.plan and not job.outcome) for job in jobs),
            "hosts": {job.entry.host: job.as_dict() for job in jobs},
        }
