# SPDX-License-Identifier: GPL-3.0-or-later
"""A change and the way back, with requests all the while; the tests build on one another."""

from __future__ import annotations

import json
import time

import pytest

from tests.rollout.site import CREW, FLEET, GATEWAY, HOSTS, lasted, steps

FLAG = {"lab_args": {"max-num-seqs": 12}}


@pytest.fixture(scope="module")
def changed(lab):
    """What the hosts ran before, the load, and the rollout of another revision with another flag."""
    before, began = lab.looks(), lab.journals()
    with lab.load() as load:
        run = lab.rollout(**lab.crew(), **FLAG)
        ended = time.time()
        load.wait(20)
    assert run.code == 0, run.output
    assert lab.journals() == began + 1
    return before, load, ended, lab.journal()


def test_no_request_fails_while_flag_and_weights_change(lab, changed):
    before, load, ended, _journal = changed
    load.whole()
    assert load.texts() == {FLEET, CREW}
    assert load.texts(since=ended) == {CREW}
    after = lab.looks()
    assert all(after[host].runs() != before[host].runs() for host in HOSTS)
    assert {host: after[host].starts - before[host].starts for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert "max-num-seqs: 12" in lab.on("cpu-12c", "cat /etc/vllm/chat.yaml")


def test_the_first_host_goes_alone_and_the_others_together(changed):
    journal = changed[3]
    assert journal[0]["event"] == "begun" and journal[0]["waves"] == [["cpu-12"], ["cpu-12b", "cpu-12c"]]
    assert journal[-1] == {**journal[-1], "event": "ended", "result": "done"}
    for host in HOSTS:
        assert steps(journal, host)[0] == "drain" and steps(journal, host)[-1] == "done"
    at = {host: [event["at"] for event in journal if event.get("host") == host and "step" in event] for host in HOSTS}
    assert at["cpu-12"][-1] <= min(at["cpu-12b"][0], at["cpu-12c"][0])


def test_the_report_tells_what_happened(lab, changed):
    load = changed[1]
    text = json.dumps(lab.report())
    assert all(host in text for host in HOSTS) and "max-num-seqs" in text
    page = sorted(lab.rollouts.glob("*/report.html"))[-1].read_text()
    assert "max-num-seqs" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert len(load.rows) > 0


def test_nothing_to_change_says_so_and_does_nothing(lab, changed):
    before, began = lab.looks(), lab.journals()
    run = lab.rollout(**lab.crew(), **FLAG)
    assert run.code == 0, run.output
    assert (lab.looks(), lab.journals()) == (before, began)
    assert "nothing" in run.output.lower(), run.output


def test_the_whole_cluster_goes_back_without_a_download(lab, changed):
    before = changed[0]
    lab.on(GATEWAY, "systemctl stop nginx")
    try:
        with lab.load() as load:
            run = lab.play("playbooks/rollback.yml", rollout_undo="last")
            ended = time.time()
            load.wait(20)
    finally:
        lab.on(GATEWAY, "systemctl start nginx")
    assert run.code == 0, run.output
    load.whole()
    assert load.texts(since=ended) == {FLEET}
    after = lab.looks()
    assert {host: after[host].runs() for host in HOSTS} == {host: before[host].runs() for host in HOSTS}
    for host in HOSTS:
        seconds = lasted(lab.journal(), host)
        bound = seconds["drain"] + seconds.get("idle", 0) + lab.restarted(host)
        print(f"{host}: {sum(seconds.values()):.1f} s, of these {bound:.1f} s to drain and start")


def test_a_way_back_that_is_run_again_does_nothing(lab, changed):
    before, began = lab.looks(), lab.journals()
    run = lab.play("playbooks/rollback.yml", rollout_undo="last")
    assert run.code == 0, run.output
    assert (lab.looks(), lab.journals()) == (before, began)
    assert "nothing to do" in run.output.lower(), run.output
