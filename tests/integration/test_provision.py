# SPDX-License-Identifier: GPL-3.0-or-later
"""provision.yml with the real Ironic of the role's lock: twenty servers with faults, kills, and the wrong disk.

The servers, their BMCs and the agent are tests/fakes/servers_off.py; no QEMU. Needs root and xorriso.
"""

from __future__ import annotations

import os
import signal
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
        assert secret not in (lab.directory / "inventory/provisioned.yml").read_text()


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
