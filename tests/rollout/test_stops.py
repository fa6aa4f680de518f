# SPDX-License-Identifier: GPL-3.0-or-later
"""Stops outside a rollout, with requests all the while: none of them fails, though nobody drained the instance."""

from __future__ import annotations

import subprocess

import pytest

from tests.rollout.site import FLEET, HOSTS, TOP

HOST = HOSTS[0]


def stopped_once(site, stop):
    """Run ``stop`` under load; check that the instance started once more, and that every request was answered."""
    starts = site.starts(HOST)
    # Several requests at a time, so that some of them run whenever the instance stops.
    with site.load(workers=4, pause=0.5) as load:
        load.wait(10)
        stop()
        site.until_up([HOST], 240)
        load.wait(10)
    load.whole()
    assert load.texts() == {FLEET}
    assert site.starts(HOST) == starts + 1
    assert site.ask(HOST) == FLEET


def test_a_person_restarts_the_unit(site):
    stopped_once(site, lambda: site.on(HOST, "systemctl restart vllm@chat"))


def test_a_person_stops_the_unit_and_starts_it_again(site):
    def stop():
        site.on(HOST, "systemctl stop vllm@chat")
        assert not site.servers()[HOST].startswith("UP")
        site.on(HOST, "systemctl start vllm@chat")

    stopped_once(site, stop)


def test_the_host_reboots(site):
    stopped_once(site, lambda: subprocess.run([str(TOP / "bin/lab"), "restart", HOST], check=True, timeout=600))


def test_the_site_playbook_changes_a_flag(site):
    def change():
        site.change_flag()
        run = site.play("site.yml", "--limit", HOST, lab_args={"max-num-seqs": site.flag()})
        assert run.code == 0, run.output

    stopped_once(site, change)


@pytest.fixture
def reinstalled(site):
    """The site, with the instance back in service however the test ends."""
    yield site
    for playbook in ("site.yml", "playbooks/undrain.yml"):
        run = site.play(playbook, "--limit", HOST, lab_args={"max-num-seqs": site.flag()})
        assert run.code == 0, run.output
    site.until_up()


def test_the_instance_is_removed(reinstalled):
    site = reinstalled
    with site.load(workers=4, pause=0.5) as load:
        load.wait(10)
        run = site.play("playbooks/remove.yml", "--limit", HOST, remove_instance="chat")
        assert run.code == 0, run.output
        load.wait(20)
    load.whole()
    assert site.on(HOST, "ls /etc/vllm; ls -d /var/lib/vllm/chat 2>/dev/null", check=False) == ""
