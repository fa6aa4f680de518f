# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every run, whatever its steps are; test_run.py and test_deprovision.py have the rest."""

from __future__ import annotations

from typing import ClassVar

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ironic import BusyError, IronicError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.loop import IRONIC_SECONDS, Loop
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.states import Step

from tests.fakes.provision_world import FakeSite


class Counted(Loop):
    """Ends each job at its third step; gpu-01 meets what ``fails`` has, by its number of steps."""

    fails: ClassVar[dict] = {}

    def next_step(self, job, node, now):
        job.progress.managed += 1
        return Step("third" if job.progress.managed >= 3 else "wait", "enroll")

    def carry_out(self, job, step):
        if job.entry.host == "gpu-01" and job.progress.managed in self.fails:
            raise self.fails.pop(job.progress.managed)
        if step.do == "third":
            job.finish("here", "done")


def run(site, **fails):
    jobs = site.jobs()
    loop = Counted(site.settings, site.world())
    loop.fails = {int(number[1:]): error for number, error in fails.items()}
    loop.run(jobs)
    return [(job.outcome, job.text) for job in jobs]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BusyError("locked"), ("here", "done")),
        (IronicError("refused"), ("failed", "refused")),
        (RuntimeError("a secret"), ("failed", "unexpected RuntimeError")),
    ],
)
def test_an_error_of_one_host_ends_its_job_at_most(tmp_path, error, outcome):
    assert run(FakeSite(tmp_path, 2), n2=error) == [outcome, ("here", "done")]


def test_an_ironic_that_does_not_answer_ends_the_run_after_a_while_and_one_that_refuses_at_once(tmp_path):
    site = FakeSite(tmp_path, 2)
    site.ironic.broken[""] = BusyError("Ironic does not answer")
    assert {text for _outcome, text in run(site)} == {
        f"Ironic does not answer, for {IRONIC_SECONDS} s; run again when it does, the order goes on"
    }
    assert IRONIC_SECONDS < site.time < IRONIC_SECONDS + 10
    site.ironic.broken[""] = IronicError("refused user 'admin' (401)")
    assert {text for _outcome, text in run(site)} == {"refused user 'admin' (401)"}
