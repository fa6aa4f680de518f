# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.job import Job
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.node import Account
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record

from tests.fakes.provision_entries import IMAGE, entry


def test_a_job_is_planned_until_it_ends_and_names_the_phase_of_a_failure_only():
    job = Job(entry(), IMAGE, Account("admin", "s3cret"), Record(), plan="would write")
    assert job.as_dict() == {
        "outcome": "planned",
        "phase": "",
        "text": "would write",
        "firmware": [],
        "serves": False,
        "seconds": {},
    }
    job.fail("bmc", "refused")
    assert (job.as_dict()["outcome"], job.as_dict()["phase"], job.as_dict()["text"]) == ("failed", "bmc", "refused")
    job.finish("written", "answers")
    assert job.as_dict()["phase"] == ""
    assert "s3cret" not in repr(job)
