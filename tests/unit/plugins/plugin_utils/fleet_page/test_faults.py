# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.faults import last_fault, with_faults
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line

LINE = Line("gpu-1", "", "a", (("h200", 8),), "seen", "", "", facts=("141 GiB each",))


def faults(**instances):
    return {"gpu-1": {"instances": instances}, "gpu-2": {"msg": "no answer"}}


def test_the_facts_of_a_host_have_the_last_fault_of_each_instance():
    found = faults(
        chat={"at": 0, "fault": "xid 64 of 1: A bad row"}, code={"at": 60, "fault": "xid\x1b[2J" + "9" * 400}
    )
    [line] = with_faults([LINE], found)
    assert line.facts[:2] == ("141 GiB each", "chat: last fault 1970-01-01 00:00 UTC: xid 64 of 1: A bad row")
    assert (
        line.facts[2].startswith(r"code: last fault 1970-01-01 00:01 UTC: xid\x1b[2J999") and len(line.facts[2]) < 360
    )
    assert with_faults([LINE], {}) == [LINE]


def test_the_last_fault_of_a_service_is_the_newest_of_its_instances():
    found = faults(
        chat={"at": 0, "fault": "xid 1: old"}, **{"chat-2": {"at": 60, "fault": "xid 2: new"}},
        chatty={"at": 99, "fault": "xid 3: of another"},
    )  # fmt: skip
    assert last_fault("chat", ["gpu-1", "gpu-2", "gpu-3"], found) == "gpu-1 1970-01-01 00:01 UTC: xid 2"
    assert last_fault("chat", ["gpu-2"], found) == ""
