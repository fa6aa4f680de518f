# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.preflight import check_hosts
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ssh import Proof

from tests.fakes.provision_world import FakeSite


def check(site, *released):
    jobs = site.jobs(*released)
    check_hosts(jobs, site.ironic.nodes(), site.world())
    return jobs[0]


def recorded(site, done="", **system):
    """Note an order that the inventory still describes, and let its system answer."""
    from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.node import order_of

    from tests.fakes.provision_entries import IMAGE

    order = order_of(site.entries[0], IMAGE, "key")
    site.settings.record_file.note("gpu-01", Record(order, "key", "SRV0001", done=done))
    site.systems["gpu-01"] = Proof(IMAGE.build_id, order, "status: done")
    return order


def test_a_host_that_proves_itself_by_its_record_is_there(tmp_path):
    site = FakeSite(tmp_path)
    recorded(site, done="yes")
    job = check(site)
    assert (job.outcome, job.text) == ("here", "is there with build 20261128-4f1c")


def test_a_host_whose_inventory_changed_is_there_and_says_how_to_write_it_again(tmp_path):
    site = FakeSite(tmp_path)
    recorded(site, done="yes")
    site.entries[0] = replace(site.entries[0], root_serial="OTHER1")
    job = check(site)
    assert job.outcome == "here"
    assert "the inventory describes another disk, network or image now: -e provision_release=gpu-01" in job.text


def test_anything_else_that_answers_at_the_address_is_refused(tmp_path):
    site = FakeSite(tmp_path)
    site.ports.add("10.0.1.11")
    assert "answers SSH (a system that this inventory does not know)" in check(site).text


def test_the_reason_why_a_provisioned_host_did_not_prove_itself_is_named(tmp_path):
    site = FakeSite(tmp_path)
    recorded(site, done="yes")
    site.systems["gpu-01"] = Proof(reason="SSH did not answer within 60 s")
    site.ports.add("10.0.1.11")
    assert "(a system that this inventory does not know: SSH did not answer within 60 s)" in check(site).text


def test_a_host_that_answers_is_not_refused_when_its_order_is_not_finished(tmp_path):
    site = FakeSite(tmp_path)
    order = recorded(site)
    site.ironic.known["gpu-01"] = {"name": "gpu-01", "provision_state": "active", "extra": {"order": order}}
    job = check(site)
    assert (job.outcome, job.progress.order, job.at_ironic) == ("", order, True)


@pytest.mark.parametrize(
    ("state", "planned"),
    [("deploying", True), ("wait call-back", True), ("active", True), ("deploy failed", True), ("enroll", False),
     ("manageable", False), ("available", False), ("deleting", False)],
)  # fmt: skip
def test_a_server_that_is_switched_on_is_written_only_if_ironic_carries_out_its_order(tmp_path, state, planned):
    """A run that was killed between the note of an order and the order itself has switched nothing on."""
    site = FakeSite(tmp_path)
    order = recorded(site)
    del site.systems["gpu-01"]
    site.ironic.stuck["gpu-01"] = state
    site.ironic.known["gpu-01"] = {"name": "gpu-01", "provision_state": state, "extra": {"order": order}}
    site.servers["gpu-01"] = replace(site.servers["gpu-01"], power="On")
    job = check(site)
    assert (bool(job.plan), "the server is switched on (On)" in job.text) == (planned, not planned)


def test_a_released_host_begins_a_new_order_and_one_under_way_goes_on(tmp_path):
    site = FakeSite(tmp_path)
    order = recorded(site)
    assert check(site, "gpu-01").progress.order == order
    recorded(site, done="yes")
    assert check(site, "gpu-01").progress.order == ""


def test_a_bmc_without_an_answer_is_named_with_its_reason(tmp_path):
    site = FakeSite(tmp_path)
    site.reasons["gpu-01"] = "did not answer all requests within 60 s"
    assert check(site).text == "the BMC https://10.1.0.1: did not answer all requests within 60 s"
