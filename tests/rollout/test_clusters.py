# SPDX-License-Identifier: GPL-3.0-or-later
"""Two clusters, each with its gateway: one after the other, side by side, and by two people at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rollout.site import HOSTS, steps

CLUSTERS = ("-i", str(Path(__file__).with_name("clusters.yml")))
LAB, OTHER = HOSTS[:2], HOSTS[2]


@pytest.fixture
def clusters(site):
    """The site in two clusters, with a flag that is to change on every host; one cluster again afterwards."""
    divided = site.play("playbooks/gateway.yml", *CLUSTERS)
    assert divided.code == 0, divided.output
    site.change_flag()
    yield site
    united = site.play("playbooks/gateway.yml", "--limit", "mirror,inference")
    site.on(OTHER, "systemctl disable --now haproxy gateway-agent")
    assert united.code == 0, united.output


def turn(journal, host):
    """Return when the turn of a host began and when it ended."""
    times = [event["at"] for event in journal if event["event"] == "step" and event["host"] == host]
    return times[0], times[-1]


def changed_once(site, before):
    """See that every host runs the new flag, and that its vLLM was started once for that."""
    after = site.looks()
    assert {host: after[host].starts - before[host].starts for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert all(f"max-num-seqs: {site.flag()}" in site.on(host, "cat /etc/vllm/chat.yaml") for host in HOSTS)


@pytest.mark.parametrize("order", ["clusters", "together"])
def test_clusters_one_after_the_other_or_side_by_side(clusters, order):
    before = clusters.looks()
    with clusters.load() as load:
        run = clusters.rollout(*CLUSTERS, rollout_order=order)
        load.wait(10)
    assert run.code == 0, run.output
    load.whole()
    changed_once(clusters, before)
    journal = clusters.journal()
    lab = [turn(journal, host) for host in LAB]
    other = turn(journal, OTHER)
    apart = other[0] >= max(end for _begin, end in lab)
    assert apart is (order == "clusters"), (lab, other)


def test_two_people_on_two_clusters(clusters):
    before, began = clusters.looks(), clusters.journals()
    with clusters.load() as load:
        # Its turn lasts, so that the other two find it at work.
        first = clusters.begin(*CLUSTERS, target_hosts=OTHER, rollout_watch=60)
        try:
            clusters.until(lambda: clusters.journals() > began and "drain" in steps(clusters.journal(), OTHER), 300)
            both = clusters.rollout(*CLUSTERS)
            second = clusters.rollout(*CLUSTERS, target_hosts=":".join(LAB))
            ended = first.end()
        finally:
            first.kill()
        load.wait(10)
    assert both.code != 0 and both.said("cluster other"), both.output
    assert (ended.code, second.code) == (0, 0), ended.output + second.output
    load.whole()
    changed_once(clusters, before)
