# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.deprovision import deprovision
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import RecordFile
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.run import provision
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.server import Disk

from tests.fakes.provision_world import BusyError, FakeSite


def written(tmp_path, count=1, **settings):
    """Return a site whose hosts were written."""
    site = FakeSite(tmp_path, count, **settings)
    provision(site.jobs(), site.settings, site.world(), check=False)
    for host, number in zip(site.servers, range(1, count + 1)):
        disks = (Disk(f"DISK{number:04d}", "PM9A3", 960), Disk(f"DATA{number:04d}", "PM9A3", 7680))
        site.servers[host] = replace(site.servers[host], power="On", disks=disks)
    site.ironic.calls.clear()
    site.shown.clear()
    return site


def remove(site, *released, check=False, secure=False, disks=None, world=None):
    jobs = [
        replace(job, disks=(job.entry.root_serial,) if disks is None else disks, secure=secure)
        for job in site.jobs(*released)
    ]
    deprovision(jobs, site.settings, world or site.world(), check)
    return {job.entry.host: job for job in jobs}


def test_each_step_that_wrote_is_undone(tmp_path):
    site = written(tmp_path)
    job = remove(site, "gpu-01")["gpu-01"]
    assert (job.outcome, job.text) == ("removed", "is switched off and forgotten, wiped DISK0001, after 10 s")
    assert [call[0] for call in site.ironic.calls] == ["create", "manage", "soft power off", "clean", "forget"]
    step = {"interface": "deploy", "step": "wipe_named_disks", "args": {"disks": ["DISK0001"], "secure": False}}
    assert site.ironic.cleaned == [("gpu-01", [step])]
    assert site.trusted[-1] == (site.settings.known_hosts, ("10.0.1.11",), "")
    assert RecordFile(site.path).read() == {}


def test_a_host_that_serves_is_refused_until_it_is_released(tmp_path):
    site = written(tmp_path)
    job = remove(site)["gpu-01"]
    assert job.text == (
        "10.0.1.11 answers SSH (the system that was provisioned here), and it would be removed; to allow that: "
        "-e provision_release=gpu-01"
    )
    assert (site.ironic.calls, job.as_dict()["serves"]) == ([], True)


def test_check_mode_says_what_goes_and_what_stays(tmp_path):
    site = written(tmp_path)
    job = remove(site, "gpu-01", check=True, secure=True)["gpu-01"]
    assert job.plan == (
        "gpu-01: would drain it at its gateways, stop it, wipe all content of DISK0001 (PM9A3, 960 GB), switch off "
        "Example GPU-8, serial number SRV0001, power On, at https://10.1.0.1, and forget its record and its SSH host "
        "key; other disks stay as they are: DATA0001 (PM9A3, 7680 GB)"
    )
    assert site.ironic.calls == []
    assert RecordFile(site.path).read()["gpu-01"].done


def test_without_a_named_disk_nothing_is_wiped(tmp_path):
    site = written(tmp_path)
    job = remove(site, "gpu-01", disks=())["gpu-01"]
    assert job.text == "is switched off and forgotten, wiped no disk, after 6 s"
    assert not site.ironic.cleaned


@pytest.mark.parametrize(
    ("change", "disks", "said"),
    [
        ({"serial": "OTHER"}, None, "it is another server"),
        ({}, ("DATA0009",), "deprovision_disks: found DATA0009, but the BMC lists no such disk; it lists DISK0001,"),
    ],
)
def test_another_server_and_an_unknown_disk_are_refused_also_when_released(tmp_path, change, disks, said):
    site = written(tmp_path)
    site.servers["gpu-01"] = replace(site.servers["gpu-01"], **change)
    job = remove(site, "gpu-01", disks=disks)["gpu-01"]
    assert said in job.text
    assert site.ironic.calls == []


def test_a_host_without_a_record_is_not_asked_and_not_changed(tmp_path):
    site = FakeSite(tmp_path)
    site.reasons["gpu-01"] = "must not be asked"
    job = remove(site)["gpu-01"]
    assert (job.outcome, site.ironic.calls) == ("absent", [])
    assert "to wipe this server all the same: -e provision_release=gpu-01" in job.text


def test_a_system_that_does_not_stop_is_wiped_all_the_same(tmp_path):
    site = written(tmp_path)
    site.ironic.deaf.add("soft power off")
    assert remove(site, "gpu-01")["gpu-01"].outcome == "removed"
    assert len(site.ironic.said("clean")) == 1


def test_a_wipe_without_power_fails_and_the_next_run_repeats_it(tmp_path):
    site = written(tmp_path)
    site.ironic.stuck["gpu-01"] = "clean wait"
    site.powers["gpu-01"] = "Off"
    assert remove(site, "gpu-01")["gpu-01"].text == "the server lost its power in the phase wipe; run again"
    assert RecordFile(site.path).read()["gpu-01"].removing
    site.ironic.stuck.clear()
    del site.systems["gpu-01"]
    site.ironic.known["gpu-01"]["maintenance"] = True
    assert remove(site)["gpu-01"].outcome == "removed"
    assert len(site.ironic.said("clean")) == 2


@pytest.mark.parametrize(
    "kill_at", ["create", "manage", "power", "note", "clean", "set_aside", "delete", "trust", "remove"]
)
@pytest.mark.parametrize("after", [False, True])
def test_a_controller_that_is_killed_anywhere_is_taken_up_by_the_next_run(tmp_path, monkeypatch, kill_at, after):
    site = written(tmp_path)
    world, killed = site.world(), []
    files = site.settings.record_file
    target = {"note": files, "remove": files, "trust": world}.get(kill_at, site.ironic)
    name = "order" if kill_at == "manage" else kill_at
    original = getattr(target, name)

    def kill(*words):
        result = original(*words) if after or killed else None
        if not killed:
            killed.append(True)
            raise KeyboardInterrupt  # as a signal does, and unlike an error of one job
        return result

    if kill_at == "trust":
        object.__setattr__(world, name, kill)
    else:
        monkeypatch.setattr(target, name, kill)
    with pytest.raises(KeyboardInterrupt):
        remove(site, "gpu-01", world=world)
    job = remove(site, "gpu-01")["gpu-01"]
    assert job.outcome == "removed", job.text
    assert (RecordFile(site.path).read(), site.ironic.known) == ({}, {})
    assert site.ironic.cleaned[0][1][0]["args"]["disks"] == ["DISK0001"]


def test_a_wipe_that_an_earlier_run_ordered_is_waited_for_and_not_repeated(tmp_path):
    site = written(tmp_path)
    site.ironic.stuck["gpu-01"] = "clean wait"
    world = site.world()

    def sleep(seconds):
        site._sleep(seconds)
        if site.ironic.said("clean") and site.time > 300:
            raise KeyboardInterrupt

    object.__setattr__(world, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        remove(site, "gpu-01", world=world)
    del site.systems["gpu-01"]
    until = site.time + 60

    def sleep_on(seconds):
        site._sleep(seconds)
        if site.time > until:
            site.ironic.stuck.clear()

    object.__setattr__(world, "sleep", sleep_on)
    # The ramdisk runs: switched on, and nobody answers SSH. No release is needed for what is half done.
    assert remove(site, world=world)["gpu-01"].outcome == "removed"
    assert len(site.ironic.said("clean")) == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_node_that_ironic_does_not_delete_yet_is_deleted_later_and_wiped_once(tmp_path, times):
    site = written(tmp_path)
    delete, refused = site.ironic.delete, []

    def busy(name):
        if len(refused) < times:
            refused.append(name)
            raise BusyError("HTTP 409: locked by host")
        delete(name)

    site.ironic.delete = busy
    assert (remove(site, "gpu-01")["gpu-01"].outcome, site.ironic.known) == ("removed", {})
    assert (len(refused), len(site.ironic.said("clean")), len(site.ironic.said("create"))) == (times, 1, 1)


@pytest.mark.parametrize(
    ("state", "planned"),
    [("cleaning", True), ("clean wait", True), ("clean failed", True), ("manageable", False), ("enroll", False)],
)
def test_a_server_that_somebody_has_switched_on_is_wiped_only_if_its_wipe_is_under_way(tmp_path, state, planned):
    """A run that was killed between the note of a wipe and its order has wiped nothing."""
    site = written(tmp_path)
    record = replace(RecordFile(site.path).read()["gpu-01"], removing="wipe-1")
    RecordFile(site.path).note("gpu-01", record)
    del site.systems["gpu-01"]
    site.ironic.stuck["gpu-01"] = state
    site.ironic.known["gpu-01"] = {"name": "gpu-01", "provision_state": state, "extra": {"order": "wipe-1"}}
    job = remove(site, check=True)["gpu-01"]
    assert (bool(job.plan), "the server is switched on (On)" in job.text) == (planned, not planned)
