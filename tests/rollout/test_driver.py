# SPDX-License-Identifier: GPL-3.0-or-later
"""Another driver comes in the turn of its host. Chips, driver and what uses them are stand-ins; the rest is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rollout.site import HOSTS, TOP, steps

HOST = "cuda-12"
DRIVER = ("-i", str(Path(__file__).with_name("driver.yml")))
NEW, LATER = "580.159.04", "580.159.05"
UPGRADE = {"target_hosts": f"{HOST}:cpu-12", "lab_driver": NEW}


@pytest.fixture(scope="module")
def machine(lab):
    """The lab with one more host, whose chips are in use."""
    subprocess.run([str(TOP / "bin/lab"), "up", HOST], check=True, cwd=TOP)
    for playbook in ("tests/rollout/prepare_driver.yml", "site.yml"):
        run = lab.play(playbook, *DRIVER, "--limit", HOST)
        assert run.code == 0, run.output
    lab.on(HOST, "systemctl start vllm@chat")
    return lab


def loaded(site):
    """Return the version of the driver that is loaded, as the vendor's tool says it."""
    return site.on(HOST, "nvidia-smi | grep -o 'Driver Version: [0-9.]*'").split()[-1]


def test_a_driver_whose_module_cannot_be_built_stops_the_rollout(machine):
    before = machine.looks()
    machine.on(HOST, "echo 6.1.0-40-amd64 > /var/lib/standin/build-fails")
    run = machine.rollout(*DRIVER, **UPGRADE)
    machine.on(HOST, "rm /var/lib/standin/build-fails")
    assert run.code != 0 and run.said("implicit declaration of function"), run.output
    assert steps(machine.journal(), HOST)[-1] != "done"
    assert machine.looks() == before


def test_the_next_run_brings_it_and_starts_again_what_used_the_chips(machine):
    before = machine.looks()
    with machine.load() as load:
        run = machine.rollout(*DRIVER, **UPGRADE)
        load.wait(5)
    assert run.code == 0, run.output
    load.whole(least=5)
    assert "driver" in steps(machine.journal(), HOST) and steps(machine.journal(), HOST)[-1] == "done"
    assert loaded(machine) == NEW
    assert machine.on(HOST, "systemctl is-active vllm@chat nvidia-persistenced") == "active\nactive"
    # Nothing else was asked for.
    assert machine.looks() == before
    again = machine.rollout(*DRIVER, **UPGRADE)
    assert again.code == 0 and again.said("Nothing to do"), again.output


def test_a_version_that_the_repository_does_not_have_stops_it_before_anything(machine):
    before, number = machine.looks(), machine.journals()
    run = machine.rollout(*DRIVER, **{**UPGRADE, "lab_driver": LATER})
    assert run.code != 0 and run.said(f"the repository has no driver {LATER}"), run.output
    assert (machine.looks(), machine.journals(), loaded(machine)) == (before, number, NEW)
    assert set(machine.servers()) == {*HOSTS}
