# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.power_cycle import (
    power_cycle,
    read_faults,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record, RecordFile
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ssh import Proof

from tests.fakes.provision_world import FakeSite

FAULTS = {"gpu-01": ["xid 79 of 0000:5d:00.0: The chip has fallen off the bus"]}
ORDERS = ["create", "manage", "soft power off", "power on", "forget"]


def serving(tmp_path, count=1):
    """Return a site whose hosts serve."""
    site = FakeSite(tmp_path, count)
    for host in site.servers:
        site.servers[host] = replace(site.servers[host], power="On")
        site.systems[host] = Proof()
    site.logs = {"/redfish/v1/Managers/1/LogServices/Sel": [{"Message": "a fatal error"}]}
    return site


def cycle(site, faults=None, check=False):
    jobs = site.jobs()
    power_cycle(
        jobs, FAULTS if faults is None else faults, site.path.parent / "logs", site.settings, site.world(), check
    )
    return {job.entry.host: job for job in jobs}


def test_only_a_host_with_such_a_fault_is_switched_off_and_on_after_its_logs_are_kept(tmp_path):
    site = serving(tmp_path, 2)
    jobs = cycle(site)
    assert {host: job.outcome for host, job in jobs.items()} == {"gpu-01": "cycled", "gpu-02": "well"}
    assert site.ironic.calls == [(order, "gpu-01") for order in ORDERS]
    assert jobs["gpu-01"].progress.seconds["off"] >= 10
    (file,) = (tmp_path / "logs").iterdir()
    assert json.loads(file.read_text()) == site.logs
    assert site.shown[0] == f"gpu-01: 1 entries of the logs of its BMC are in {file}"
    assert RecordFile(site.path).read() == {}


def test_check_mode_changes_nothing_and_names_the_fault(tmp_path):
    site = serving(tmp_path)
    job = cycle(site, check=True)["gpu-01"]
    assert job.plan == (
        "gpu-01: would drain it at its gateways, keep the logs of its BMC, and switch Example GPU-8, serial number "
        "SRV0001, at https://10.1.0.1 off and on: xid 79 of 0000:5d:00.0: The chip has fallen off the bus"
    )
    assert (site.ironic.calls, job.as_dict()["serves"], (tmp_path / "logs").exists()) == ([], True, False)


@pytest.mark.parametrize(
    ("change", "record", "said"),
    [
        ({"serial": "OTHER"}, Record(bmc_serial="SRV0001"), "it is another server"),
        ({"power": "Off"}, Record(), "is switched off, and not by this playbook"),
    ],
)
def test_another_server_and_one_that_somebody_has_switched_off_are_refused(tmp_path, change, record, said):
    site = serving(tmp_path)
    site.servers["gpu-01"] = replace(site.servers["gpu-01"], **change)
    RecordFile(site.path).note("gpu-01", record)
    job = cycle(site)["gpu-01"]
    assert said in job.text
    assert (site.ironic.calls, job.outcome) == ([], "failed")


class _Killed(BaseException):
    pass


def test_a_run_that_was_killed_while_the_server_was_off_is_taken_up_without_its_fault(tmp_path):
    site = serving(tmp_path)
    power = site.ironic.power

    def killed(name, target, timeout):
        if target == "power on":
            raise _Killed
        power(name, target, timeout)

    site.ironic.power = killed
    with pytest.raises(_Killed):
        cycle(site)
    site.ironic.power = power
    site.servers["gpu-01"] = replace(site.servers["gpu-01"], power="Off")
    assert RecordFile(site.path).read()["gpu-01"].cycling
    assert cycle(site, faults={})["gpu-01"].outcome == "cycled"
    assert [call[0] for call in site.ironic.calls] == ORDERS
    assert RecordFile(site.path).read() == {}


def test_a_run_that_was_killed_after_the_start_only_waits_for_the_system(tmp_path):
    site = serving(tmp_path)
    RecordFile(site.path).note("gpu-01", Record(order="o", host_key="k", cycling="2026-11-28T18:00:00Z"))
    assert cycle(site, faults={})["gpu-01"].outcome == "cycled"
    assert [call[0] for call in site.ironic.calls] == ["create", "manage", "forget"]
    assert RecordFile(site.path).read()["gpu-01"] == Record(order="o", host_key="k")


@pytest.mark.parametrize("kill_at", ["note", "set_aside", "delete"])
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_at_its_end_leaves_no_node_behind_the_next_one(tmp_path, monkeypatch, kill_at, after):
    """Ironic's node has the password of the BMC; nobody looks at a host again that is well and recorded so."""
    site = serving(tmp_path)
    target = RecordFile if kill_at == "note" else site.ironic
    original, killed = getattr(target, kill_at), []

    def kill(*words):
        # The first note is that of the stop.
        hit = not killed and (kill_at != "note" or not words[-1].cycling)
        if after or not hit:
            original(*words)
        if hit:
            killed.append(True)
            raise _Killed

    monkeypatch.setattr(target, kill_at, kill)
    with pytest.raises(_Killed):
        cycle(site)
    assert cycle(site, faults={})["gpu-01"].outcome in ("cycled", "well")
    assert (site.ironic.known, RecordFile(site.path).read()) == ({}, {})
    assert len(site.ironic.said("power on")) == 1


def test_a_system_that_does_not_come_back_fails_and_stays_known_to_the_next_run(tmp_path):
    site = serving(tmp_path)
    del site.systems["gpu-01"]
    job = cycle(site)["gpu-01"]
    assert (job.outcome, job.text) == ("failed", "the phase boot has taken longer than 1800 s")
    assert RecordFile(site.path).read()["gpu-01"].cycling


def test_logs_that_cannot_be_read_stop_nothing(tmp_path):
    site = serving(tmp_path)
    site.logs = {}
    assert cycle(site)["gpu-01"].outcome == "cycled"
    assert site.shown[0] == "gpu-01: no log of its BMC could be kept: it has none"


@pytest.mark.parametrize(
    "odd", ["not JSON", "[" * 100_000, '{"a": 1}', '"text"', "[1]", "[[]]", " " * 70_000 + "[]", ["a"], 7, "null"]
)
def test_a_host_that_prints_something_else_fails_alone(tmp_path, odd):
    site = serving(tmp_path, 2)
    jobs = site.jobs()
    faults = read_faults(jobs, {"gpu-01": json.dumps(FAULTS["gpu-01"]), "gpu-02": odd})
    assert faults == FAULTS
    power_cycle(jobs, faults, tmp_path / "logs", site.settings, site.world(), False)
    assert {job.entry.host: job.outcome for job in jobs} == {"gpu-01": "cycled", "gpu-02": "failed"}
    assert jobs[1].text.startswith("vllm-health boot-faults: found ") and len(jobs[1].text) < 400
    assert jobs[1].text.endswith(", expected a list of sentences in JSON")


def test_a_host_that_did_not_answer_has_no_faults_and_sentences_are_bounded(tmp_path):
    jobs = serving(tmp_path, 2).jobs()
    faults = read_faults(jobs, {"gpu-01": "", "gpu-02": json.dumps(["x\x1b" * 60] * 110)})
    assert faults["gpu-01"] == [] and len(faults["gpu-02"]) == 100
    assert all(text.isprintable() and len(text) < 1000 for text in faults["gpu-02"])
