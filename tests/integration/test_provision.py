# SPDX-License-Identifier: GPL-3.0-or-later
"""provision.yml with the real Ironic of the role's lock: twenty servers with faults, kills, and the wrong disk.

The servers, their BMCs and the agent are tests/fakes/servers_off.py; no QEMU. Needs root and xorriso.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.ironic_lab import IRONIC_PASSWORD, IronicLab, ironic_environment
from tests.fakes.servers_off import PASSWORD

pytestmark = pytest.mark.long
CACHE = Path(__file__).resolve().parents[2] / ".cache"
DEADLINE = 300


def servers(network, count, **faults):
    """Return plans of servers; ``faults`` names those with one, by number."""
    found = []
    for number in range(1, count + 1):
        plan = {
            "address": f"127.20.{network}.{number}",
            "mac": f"52:54:00:00:{network:02x}:{number:02x}",
            "serial": f"SRV{number:04d}",
            "disks": [f"OSDISK{number:04d}", f"DATA{number:04d}"],
        }
        fault = faults.get(f"n{number}")
        found.append({**plan, "fault": fault} if fault else plan)
    return found


@pytest.fixture
def lab(request, tmp_path):
    """Return a lab of these servers."""
    network, plans = request.param
    with IronicLab(tmp_path, ironic_environment(CACHE), plans, port=26300 + 10 * network) as made:
        yield made


def written(lab):
    """Return the addresses of servers whose system disk, and nothing else, was written."""
    return [
        address
        for number, (address, state) in enumerate(lab.state().items(), 1)
        if state["written"] == [f"OSDISK{number:04d}"] and state["system"]
    ]


def wait_for(lab, condition):
    end = time.monotonic() + DEADLINE
    while not condition(lab.state()):
        assert time.monotonic() < end, lab.state()
        time.sleep(0.2)


FAULTS = {"n1": "account", "n2": "account", "n3": "hang", "n4": "media"}


@pytest.mark.parametrize("lab", [(1, servers(1, 20, **FAULTS))], indirect=True, ids=["twenty"])
def test_of_twenty_servers_sixteen_are_written_and_four_named(lab):
    status, output = lab.run()
    assert status != 0
    for host, reason in {
        "gpu-01": "refused user 'admin' (401)",
        "gpu-02": "refused user 'admin' (401)",
        "gpu-03": "no answer within 20 s",
        "gpu-04": "the remote image cannot be mounted",
    }.items():
        assert any(host in line and reason in line for line in output.splitlines()), (host, output)
    assert len(written(lab)) == 16
    assert all(len(state["writes"]) <= 1 for state in lab.state().values())
    # A second run changes none of those that are there.
    agents = {address: state["agents"] for address, state in lab.state().items()}
    lab.change("127.20.1.4", fault="")
    status, output = lab.run("-l", "inference:!gpu-01:!gpu-02:!gpu-03")
    assert status == 0, output
    assert len(written(lab)) == 17
    after = {address: state["agents"] for address, state in lab.state().items()}
    assert {address for address in after if after[address] != agents[address]} == {"127.20.1.4"}
    for secret in (PASSWORD, IRONIC_PASSWORD, "PRIVATE KEY"):
        assert secret not in output
        for told in ("inventory/provisioned.yml", "ironic.log"):
            assert secret not in (lab.directory / told).read_text()


@pytest.mark.parametrize("lab", [(2, servers(2, 1))], indirect=True, ids=["one"])
def test_killed_controller_and_killed_ironic_in_the_middle_of_a_write(lab):
    address = "127.20.2.1"
    lab.change(address, write_seconds=40)
    process = lab.play()
    wait_for(lab, lambda states: states[address]["written"] and not states[address]["writes"])
    # Before Ironic waits for the agent it takes its own death for the end of the order.
    time.sleep(8)
    os.killpg(process.pid, signal.SIGKILL)
    lab.kill_ironic()
    lab.start_ironic()
    status, output = lab.run()
    assert status == 0, output
    assert written(lab) == [address]
    assert lab.state()[address]["writes"] == ["OSDISK0001"], "written twice, or not at all"
    status, output = lab.run()
    assert status == 0
    assert "changed=0" in output


@pytest.mark.parametrize("lab", [(3, servers(3, 1))], indirect=True, ids=["one"])
def test_a_power_cut_in_the_middle_of_a_write_is_repaired_in_the_same_run(lab):
    address = "127.20.3.1"
    lab.change(address, write_seconds=60)
    process = lab.play()
    wait_for(lab, lambda states: states[address]["written"])
    lab.change(address, power="Off", write_seconds=0.5)
    output, _errors = process.communicate(timeout=2 * DEADLINE)
    assert process.returncode == 0, output
    assert "lost its power in the phase write" in output
    assert written(lab) == [address]


@pytest.mark.parametrize("lab", [(4, servers(4, 2))], indirect=True, ids=["two"])
def test_two_hosts_are_removed_again_and_each_step_is_undone(lab):
    addresses = ["127.20.4.1", "127.20.4.2"]
    record, known = lab.directory / "inventory/provisioned.yml", lab.directory / "known_hosts"
    status, output = lab.run()
    assert status == 0, output
    assert "127.20.4.1" in known.read_text()
    # A host that serves is refused, before anything is ordered.
    status, output = lab.run("-l", "inference", playbook="deprovision.yml")
    assert status != 0
    assert "127.20.4.1 answers SSH (the system that was provisioned here), and it would be removed" in output, output
    assert not any(state["wipes"] for state in lab.state().values())
    words = ("-l", "inference", "-e", "provision_release=gpu-01,gpu-02", "-e", "deprovision_secure=true")
    named = ("-e", json.dumps({"deprovision_disks": {"gpu-02": ["OSDISK0002", "DATA0002"]}}))
    status, output = lab.run(*words, *named, "--check", playbook="deprovision.yml")
    assert status == 0, output
    assert "wipe all content of OSDISK0001 (PM9A3, 960 GB), switch off Example GPU-8, serial number SRV0001" in output
    assert "other disks stay as they are: DATA0001 (PM9A3, 960 GB)" in output
    assert all(state["power"] == "On" and not state["wipes"] for state in lab.state().values())
    # Killed in the middle of the wipes, the controller and Ironic: the next run goes on.
    for address in addresses:
        lab.change(address, write_seconds=30)
    process = lab.play(*words, *named, playbook="deprovision.yml")
    wait_for(lab, lambda states: all(states[address]["agents"] == 2 for address in addresses))
    time.sleep(8)
    os.killpg(process.pid, signal.SIGKILL)
    for address in addresses:
        lab.change(address, write_seconds=0.5)
    status, output = lab.run(*words, *named, playbook="deprovision.yml")
    assert status == 0, output
    first, second = (lab.state()[address] for address in addresses)
    assert (first["wipes"], first["power"], first["written"]) == ([["gpu-01", True, "OSDISK0001"]], "Off", [])
    assert (second["wipes"], second["power"]) == ([["gpu-02", True, "OSDISK0002", "DATA0002"]], "Off")
    assert "gpu-01" not in record.read_text() and "127.20.4.1" not in known.read_text()
    status, output = lab.run("-l", "inference", playbook="deprovision.yml")
    assert status == 0, output
    assert "changed=0" in output
    # The way back: a removed host is a server that is switched off.
    status, output = lab.run("-l", "gpu-01")
    assert status == 0, output
    assert lab.state()["127.20.4.1"]["system"]


@pytest.mark.parametrize("lab", [(5, servers(5, 2))], indirect=True, ids=["two"])
def test_a_released_host_that_serves_is_drained_at_its_gateway_before_it_is_written(lab):
    status, output = lab.run()
    assert status == 0, output
    lab.add_gateway()
    words = ("-e", "provision_release=gpu-01")
    # Too few servers would stay: nothing is written.
    status, output = lab.run(*words, "-e", "drain_min_available=2")
    assert status != 0
    assert "gpu-01--chat" in output and "drained: \n" in output, output
    assert [len(state["writes"]) for state in lab.state().values()] == [1, 1]
    status, output = lab.run(*words, "-e", "drain_reason=reinstalled")
    assert status == 0, output
    drained = json.loads(output.rpartition("drained: ")[2])
    assert '"gpu-01--chat"' in json.dumps(drained) and "gpu-02--chat" not in json.dumps(drained), drained
    assert "reinstalled" in json.dumps(drained)
    assert [len(state["writes"]) for state in lab.state().values()] == [2, 1]
    assert output.index("drain_servers | Drain the hosts") < output.index("gpu-01: enroll")


@pytest.mark.parametrize("lab", [(9, servers(9, 2))], indirect=True, ids=["two"])
def test_a_host_with_lost_chips_is_drained_switched_off_and_on_and_returned(lab):
    addresses = ["127.20.9.1", "127.20.9.2"]
    status, output = lab.run()
    assert status == 0, output
    lab.add_gateway()
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    allowed = {"inference": {"hosts": {"gpu-01": {**local, "power_cycle_allowed": True}, "gpu-02": local}}}
    (lab.directory / "inventory/cycle.yml").write_text(json.dumps(allowed))
    health = lab.directory / "bin/vllm-health"
    health.write_text("#!/bin/sh\necho '[\"xid 79 of 0000:5d:00.0: The chip has fallen off the bus\"]'\n")
    health.chmod(0o755)
    before = [lab.state()[address]["boots"] for address in addresses]
    # Off by default, and never where too few servers would stay.
    status, output = lab.run("-l", "gpu-02", playbook="power_cycle.yml")
    assert (status != 0, "gpu-02: expected power_cycle_allowed: true" in output) == (True, True), output
    status, output = lab.run("-l", "gpu-01", "-e", "drain_min_available=2", playbook="power_cycle.yml")
    assert (status != 0, "gpu-01--chat" in output) == (True, True), output
    assert [lab.state()[address]["boots"] for address in addresses] == before
    status, output = lab.run("-l", "gpu-01", "--check", playbook="power_cycle.yml")
    assert (status, "off and on: xid 79" in output) == (0, True), output
    assert [lab.state()[address]["boots"] for address in addresses] == before
    logs = ("-e", f"power_cycle_logs={lab.directory / 'logs'}")
    status, output = lab.run("-l", "gpu-01", *logs, playbook="power_cycle.yml")
    assert status == 0, output
    assert "A fatal error was detected" in next((lab.directory / "logs").iterdir()).read_text()
    assert output.index("drain_servers | Drain the hosts") < output.index("1 entries of the logs of its BMC are in")
    assert output.index("1 entries of the logs of its BMC are in") < output.index("gpu-01: stop")
    assert json.loads(output.rpartition("drained: ")[2]).get("servers", {}) == {}, output
    after = [lab.state()[address]["boots"] for address in addresses]
    assert [new - old for new, old in zip(after, before)] == [2, 0]
    assert lab.state()[addresses[0]]["system"]
    # Killed while the server was off: a run that finds the host unreachable starts it.
    health.write_text("#!/bin/sh\necho '[]'\n")
    record = lab.directory / "inventory/provisioned.yml"
    record.write_text(record.read_text().replace("provisioned:\n", "provisioned:\n        cycling: earlier\n", 1))
    lab.change(addresses[0], power="Off")
    status, output = lab.run("-l", "gpu-01", *logs, playbook="power_cycle.yml")
    assert status == 0, output
    assert lab.state()[addresses[0]]["system"] and "cycling" not in record.read_text()
    status, output = lab.run("-l", "gpu-01", *logs, playbook="power_cycle.yml")
    assert (status, "changed=0" in output) == (0, True), output


ASPM = {"maker": "Dell Inc.", "firmware": {"PcieAspmL1": "Enabled", "MmioAbove4Gb": "Enabled"}}


@pytest.mark.parametrize("lab", [(6, [{**servers(6, 1)[0], **ASPM}])], indirect=True, ids=["one"])
def test_firmware_is_set_by_ironic_before_the_disk_is_written(lab):
    status, output = lab.run()
    assert status == 0, output
    assert "firmware: aspm_off: PcieAspmL1 is 'Enabled', wanted Disabled and will be set" in output
    assert "and still" not in output
    assert lab.state()["127.20.6.1"]["firmware"] == {"PcieAspmL1": "Disabled", "MmioAbove4Gb": "Enabled"}
    assert written(lab) == ["127.20.6.1"]
    # All else of nginx's directory is root's.
    assert [each.name for each in (lab.directory / "http").iterdir() if each.is_dir()] == ["redfish"]


ORDERS = {f"n{number}": f"order {number}" for number in range(1, 9)}


@pytest.mark.parametrize("lab", [(7, servers(7, 8, **ORDERS))], indirect=True, ids=["eight"])
def test_bmcs_that_refuse_from_one_of_eight_changes_on_are_written_by_the_next_run(lab):
    status, output = lab.run()
    assert status != 0
    refused = [f"gpu-{number:02d}" for number in range(1, 9) if f"gpu-{number:02d}: failed in the phase" in output]
    assert len(refused) >= 5, output
    assert any("is refused" in line for line in output.splitlines()), output
    for address in lab.state():
        lab.change(address, fault="")
    status, output = lab.run()
    assert status == 0, output
    assert len(written(lab)) == 8
    assert all(len(state["writes"]) <= 2 and state["medium"] == "" for state in lab.state().values())


@pytest.mark.parametrize("lab", [(8, servers(8, 2))], indirect=True, ids=["two"])
def test_a_full_disk_of_the_provisioner_is_an_error_and_the_next_run_writes(lab):
    lab.fill_disk()
    status, output = lab.run()
    assert status != 0
    assert "No space left on device" in output, output
    assert not any(state["writes"] for state in lab.state().values())
    (lab.directory / "http/ballast").unlink()
    status, output = lab.run()
    assert status == 0, output
    assert len(written(lab)) == 2
