# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.firmware import read_settings
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import RecordFile
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.run import provision
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ssh import Proof
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.states import read_deadlines

from tests.fakes.provision_world import BusyError, FakeSite


class KilledError(Exception):
    """The controller ends here."""


def run(site, *released, check=False):
    jobs = site.jobs(*released)
    provision(jobs, site.settings, site.world(), check)
    return {job.entry.host: job for job in jobs}


def test_a_server_becomes_a_host_that_is_recorded_trusted_and_forgotten_by_ironic(tmp_path):
    site = FakeSite(tmp_path)
    job = run(site)["gpu-01"]
    assert (job.outcome, job.as_dict()["phase"]) == ("written", "")
    assert [call[0] for call in site.ironic.calls] == ["create", "manage", "provide", "active", "forget"]
    record = RecordFile(site.path).read()["gpu-01"]
    assert (record.bmc_serial, record.root_disk, record.build_id) == (
        "SRV0001",
        "serial number DISK0001",
        "20261128-4f1c",
    )
    assert record.done == "2026-11-28T18:00:00Z"
    assert site.trusted[0][1:] == (("10.0.1.11",), record.host_key)
    # Neither the password of the BMC, nor the private key of the host, which the config drive has.
    assert "private" in str(site.ironic.drives["gpu-01"])
    told = f"{site.path.read_text()} {site.shown} {job} {job.as_dict()}"
    assert "s3cret" not in told and "private" not in told
    assert [text.split(" (")[0] for text in site.shown][:3] == ["gpu-01: enroll", "gpu-01: prepare", "gpu-01: order"]


def test_a_second_run_finds_the_host_there_and_asks_nobody_for_anything(tmp_path):
    site = FakeSite(tmp_path)
    run(site)
    site.ironic.calls.clear()
    site.reasons["gpu-01"] = "must not be asked"
    assert run(site)["gpu-01"].outcome == "here"
    assert site.ironic.calls == []


def test_check_mode_names_the_disk_and_orders_nothing(tmp_path):
    site = FakeSite(tmp_path, 2)
    site.reasons["gpu-02"] = "refused user 'admin' (401)"
    jobs = run(site, check=True)
    assert "would write debian13" in jobs["gpu-01"].plan
    assert jobs["gpu-02"].as_dict()["text"] == "the BMC https://10.1.0.2: refused user 'admin' (401)"
    assert site.ironic.calls == []
    assert not site.path.exists()
    assert "s3cret" not in str([job.as_dict() for job in jobs.values()])


def test_of_twenty_servers_the_good_ones_are_written_and_the_others_named(tmp_path):
    site = FakeSite(tmp_path, 20)
    site.reasons |= {"gpu-01": "refused user 'admin' (401)", "gpu-02": "refused user 'admin' (401)"}
    site.reasons["gpu-03"] = "did not answer all requests within 60 s"
    site.ironic.stuck["gpu-04"] = "verifying"
    jobs = run(site)
    assert [host for host, job in jobs.items() if job.outcome == "failed"] == ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
    assert sum(job.outcome == "written" for job in jobs.values()) == 16
    assert sorted(site.ironic.said("active")) == [f"gpu-{number:02d}" for number in range(5, 21)]
    assert jobs["gpu-04"].text == "the phase enroll has taken longer than 300 s"


@pytest.mark.parametrize(
    "kill_at",
    ["create", "manage", "provide", "note", "change", "active", "sleep", "trust", "finish", "set_aside", "delete"],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_controller_that_is_killed_anywhere_is_taken_up_by_the_next_run(tmp_path, monkeypatch, kill_at, after):
    """The disk is written once, or twice where the first order was never given; the host is recorded at the end."""
    site = FakeSite(tmp_path)
    world, jobs = site.world(), site.jobs()
    target = {"note": site.settings.record_file, "finish": site.settings.record_file}.get(kill_at, site.ironic)
    name = "order" if kill_at in ("manage", "provide", "active") else kill_at
    killed = []

    def kill(original):
        def call(*words):
            hit = not killed and (name != "order" or kill_at in words)
            if hit and not after:
                killed.append(True)
                raise KeyboardInterrupt
            result = original(*words)
            if hit:
                killed.append(True)
                raise KeyboardInterrupt
            return result

        return call

    if kill_at in ("sleep", "trust"):
        object.__setattr__(world, kill_at, kill(getattr(world, kill_at)))
    else:
        monkeypatch.setattr(target, name, kill(getattr(target, name)), raising=True)
    with pytest.raises(KeyboardInterrupt):
        provision(jobs, site.settings, world, check=False)
    assert killed
    found = run(site)["gpu-01"]
    assert found.outcome in ("written", "here"), found.text
    assert len(site.ironic.said("active")) <= 2
    assert (bool(RecordFile(site.path).read()["gpu-01"].done), site.ironic.known) == (True, {})


def test_an_ironic_that_is_killed_and_comes_back_is_waited_for(tmp_path):
    site = FakeSite(tmp_path)
    site.ironic.stuck["gpu-01"] = "wait call-back"
    world = site.world()

    def sleep(seconds):
        site._sleep(seconds)
        if site.time == 20:
            site.ironic.broken[""] = BusyError("no connection")
        if site.time == 100:
            del site.ironic.broken[""]
            site.ironic.stuck.clear()

    object.__setattr__(world, "sleep", sleep)
    jobs = site.jobs()
    provision(jobs, site.settings, world, check=False)
    assert jobs[0].outcome == "written"
    assert site.ironic.said("active") == ["gpu-01"]


def test_an_ironic_that_stays_away_ends_the_run_and_not_the_order(tmp_path):
    site = FakeSite(tmp_path)
    site.ironic.stuck["gpu-01"] = "wait call-back"
    world = site.world()

    def sleep(seconds):
        site._sleep(seconds)
        if site.time == 20:
            site.ironic.broken[""] = BusyError("Ironic does not answer")

    object.__setattr__(world, "sleep", sleep)
    jobs = site.jobs()
    provision(jobs, site.settings, world, check=False)
    assert jobs[0].text == "Ironic does not answer, for 180 s; run again when it does, the order goes on"
    site.ironic.broken.clear()
    site.ironic.stuck.clear()
    assert run(site)["gpu-01"].outcome == "written"
    assert site.ironic.said("active") == ["gpu-01"]


def test_a_power_cut_in_the_middle_of_a_write_is_noticed_and_repaired_once(tmp_path):
    site = FakeSite(tmp_path)
    site.ironic.stuck["gpu-01"] = "wait call-back"
    site.powers["gpu-01"] = "Off"
    world = site.world()

    def sleep(seconds):
        site._sleep(seconds)
        if site.ironic.said("abort"):
            site.ironic.stuck.clear()
            site.powers["gpu-01"] = "On"

    object.__setattr__(world, "sleep", sleep)
    jobs = site.jobs()
    provision(jobs, site.settings, world, check=False)
    assert jobs[0].outcome == "written"
    assert (site.ironic.said("abort"), len(site.ironic.said("active"))) == (["gpu-01"], 2)
    assert any("lost its power" in text for text in site.shown)


def test_a_bmc_that_falls_silent_fails_after_a_minute_and_not_with_ironic(tmp_path):
    site = FakeSite(tmp_path, 2)
    site.ironic.stuck["gpu-01"] = "deploying"
    world = site.world()

    def sleep(seconds):
        site._sleep(seconds)
        if site.time == 10:
            site.reasons["gpu-01"] = "no answer within 20 s"

    object.__setattr__(world, "sleep", sleep)
    jobs = site.jobs()
    provision(jobs, site.settings, world, check=False)
    assert [job.outcome for job in jobs] == ["failed", "written"]
    assert jobs[0].text == "the BMC has not answered for 60 s"
    assert site.time <= 110


def test_a_phase_that_takes_too_long_is_aborted(tmp_path):
    site = FakeSite(tmp_path, deadlines=read_deadlines({"ramdisk": 30}))
    site.ironic.stuck["gpu-01"] = "wait call-back"
    job = run(site)["gpu-01"]
    assert (job.outcome, job.text) == ("failed", "the phase ramdisk has taken longer than 30 s")
    assert site.ironic.said("abort") == ["gpu-01"]
    assert site.ironic.said("active") == ["gpu-01"]


def test_a_node_that_ironic_works_at_is_asked_again(tmp_path):
    site = FakeSite(tmp_path)
    original, refused = site.ironic.order, []

    def order(*words):
        if len(refused) < 3:
            refused.append(words)
            raise BusyError("HTTP 409: locked by host")
        return original(*words)

    site.ironic.order = order
    assert run(site)["gpu-01"].outcome == "written"


def test_a_node_that_ironic_does_not_delete_yet_is_deleted_later_and_its_host_proves_itself_once(tmp_path):
    site = differing(tmp_path, "report")
    site.firmware = "SSH: no connection"
    delete, refused = site.ironic.delete, []

    def busy(name):
        if len(refused) < 3:
            refused.append(name)
            raise BusyError("HTTP 409: locked by host")
        delete(name)

    site.ironic.delete = busy
    assert (run(site)["gpu-01"].outcome, site.ironic.known) == ("written", {})
    assert site.shown.count("gpu-01: firmware: cannot be read on the host: SSH: no connection") == 1
    assert (len(refused), len(site.ironic.said("active"))) == (3, 1)


def test_what_ironic_refuses_until_the_deadline_is_named_with_it(tmp_path):
    site = FakeSite(tmp_path)
    site.ironic.ports = lambda _name: []

    def add_port(_name, _mac):
        raise BusyError("HTTP 409: A port with MAC address 52:54:00:00:00:01 already exists.")

    site.ironic.add_port = add_port
    assert run(site)["gpu-01"].text == (
        "the phase order has taken longer than 600 s: HTTP 409: A port with MAC address 52:54:00:00:00:01 already "
        "exists."
    )


def test_a_refusal_that_ironic_has_taken_back_is_not_named(tmp_path):
    site = FakeSite(tmp_path)
    site.ironic.broken["gpu-01"] = BusyError("HTTP 409: locked by host")
    world = site.world()

    def sleep(seconds):
        site._sleep(seconds)
        site.ironic.stuck["gpu-01"] = "verifying"
        site.ironic.broken.clear()

    object.__setattr__(world, "sleep", sleep)
    jobs = site.jobs()
    provision(jobs, site.settings, world, check=False)
    assert jobs[0].text == "the phase enroll has taken longer than 300 s"


@pytest.mark.parametrize("power", ["On", "Off"])
def test_a_run_ends_although_ironic_never_takes_the_abort(tmp_path, power):
    site = FakeSite(tmp_path, deadlines=read_deadlines({"ramdisk": 100}))
    site.ironic.stuck["gpu-01"] = "wait call-back"
    site.powers["gpu-01"] = power
    order = site.ironic.order

    def busy(*words):
        if "abort" in words:
            raise BusyError("HTTP 409: locked by host")
        order(*words)

    site.ironic.order = busy
    job = run(site)["gpu-01"]
    assert job.text == "the phase ramdisk has taken longer than 100 s: HTTP 409: locked by host"
    assert site.time < 200


def test_the_node_of_a_host_that_is_there_is_kept_only_where_that_is_asked_for(tmp_path):
    site = FakeSite(tmp_path)
    site.settings = replace(site.settings, keep_node=True)
    run(site)
    assert run(site)["gpu-01"].outcome == "here"
    site.settings = replace(site.settings, keep_node=False)
    run(site, check=True)
    assert list(site.ironic.known) == ["gpu-01"]
    site.ironic.broken["gpu-01"] = BusyError("HTTP 409: locked by host")
    assert run(site)["gpu-01"].outcome == "here"
    assert site.shown[-1] == (
        "gpu-01: Ironic still has its node, and the password of its BMC; run again: HTTP 409: locked by host"
    )
    del site.ironic.broken["gpu-01"]
    assert (run(site)["gpu-01"].outcome, site.ironic.known) == ("here", {})


def test_a_serving_host_is_never_written_and_a_released_one_is_marked_for_the_guard(tmp_path):
    site = FakeSite(tmp_path)
    run(site)
    site.ironic.calls.clear()
    site.systems["gpu-01"] = Proof("foreign", "foreign", "status: done")
    refused = run(site)["gpu-01"]
    assert "10.0.1.11 answers SSH" in refused.text
    assert site.ironic.calls == []
    released = site.jobs("gpu-01")
    del site.systems["gpu-01"]
    marks = []
    change = site.ironic.change
    site.ironic.change = lambda name, patch: (marks.append(patch), change(name, patch))
    provision(released, site.settings, site.world(), check=False)
    assert released[0].outcome == "written"
    extra = [each["value"] for each in marks[-1] if each["path"] == "/extra"]
    assert extra[0]["released"] == "gpu-01"


def test_a_system_of_another_image_is_not_taken_for_the_new_one(tmp_path):
    site = FakeSite(tmp_path)
    original = site._system

    def other(address):
        original(address)
        if "gpu-01" in site.systems:
            site.systems["gpu-01"] = Proof("old-build", site.systems["gpu-01"].order, "status: done")

    site._system = other
    job = run(site)["gpu-01"]
    assert job.outcome == "failed"
    assert "has build 'old-build', expected '20261128-4f1c'" in job.text
    assert not RecordFile(site.path).read()["gpu-01"].done


def test_a_missing_port_is_added_because_ironic_would_never_recognise_the_agent(tmp_path):
    site = FakeSite(tmp_path)
    original = site.ironic.create

    def create(node, mac):
        original(node, mac)
        site.ironic.macs.clear()

    site.ironic.create = create
    assert run(site)["gpu-01"].outcome == "written"
    assert site.ironic.macs == {"gpu-01": ["52:54:00:00:00:01"]}


def test_the_failure_of_one_host_is_not_repeated_with_what_it_sent(tmp_path):
    site = FakeSite(tmp_path)
    site.ironic.broken["gpu-01"] = RuntimeError("a secret of the server")
    job = run(site)["gpu-01"]
    assert job.text == "unexpected RuntimeError"


def differing(tmp_path, how):
    """Return a site whose server has ASPM on."""
    site = FakeSite(tmp_path, firmware=read_settings())
    site.entries[0] = replace(site.entries[0], firmware=how)
    site.servers["gpu-01"] = replace(site.servers["gpu-01"], maker="Dell Inc.", firmware={"PcieAspmL1": "Enabled"})
    return site


def test_firmware_that_differs_is_reported_and_left_as_it_is(tmp_path):
    site = differing(tmp_path, "report")
    assert run(site)["gpu-01"].as_dict()["firmware"] == ["aspm_off: PcieAspmL1 is 'Enabled', wanted Disabled"]
    assert (
        "gpu-01: firmware: aspm_off: PcieAspmL1 is 'Enabled', wanted Disabled; provision.firmware: set would set it"
        in site.shown
    )
    assert (site.ironic.steps, site.ironic.calls[0][0]) == ({}, "create")


@pytest.mark.parametrize("obeys", [True, False])
def test_firmware_is_set_where_that_is_asked_for_and_read_again(tmp_path, obeys):
    site = differing(tmp_path, "set")
    original = site.ironic.forget

    def order(*words):
        site.ironic.__class__.order(site.ironic, *words)
        if obeys and "active" in words:
            site.servers["gpu-01"] = replace(site.servers["gpu-01"], firmware={"PcieAspmL1": "Disabled"})

    site.ironic.order = order
    site.ironic.forget = lambda name: (kept.append(dict(site.ironic.known[name])), original(name))
    kept = []
    job = run(site)["gpu-01"]
    settings = {"settings": [{"name": "PcieAspmL1", "value": "Disabled"}]}
    assert site.ironic.steps["gpu-01"][0]["args"] == settings
    assert kept[0]["bios_interface"] == "redfish"
    assert job.outcome == "written"
    assert (job.firmware == ()) is obeys
    assert any("was set, and still aspm_off" in text for text in site.shown) is not obeys


@pytest.mark.parametrize("how", ["report", "set"])
def test_what_the_new_host_shows_is_compared_too(tmp_path, how):
    site = differing(tmp_path, how)
    server = site.servers["gpu-01"]
    site.servers["gpu-01"] = replace(server, firmware={"PcieAspmL1": "Disabled", "SubNumaCluster": "Disabled"})
    site.firmware = {"functions": {}, "sockets": 2, "nodes": 4}
    said = "numa: number of NUMA nodes with processors is 4, wanted 2, one for each socket"
    job = run(site)["gpu-01"]
    assert (job.outcome, job.as_dict()["firmware"]) == ("written", [said])
    assert f"gpu-01: firmware: on the host {said}" in site.shown


def test_a_host_that_cannot_be_read_is_written_all_the_same(tmp_path):
    site = differing(tmp_path, "report")
    site.firmware = "SSH: no connection"
    assert run(site)["gpu-01"].outcome == "written"
    assert "gpu-01: firmware: cannot be read on the host: SSH: no connection" in site.shown
