# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.bmc_log import keep_logs, read_logs
from ansible_collections.baremetal.inference.plugins.plugin_utils.redfish.chips import RedfishError

SYSTEM = "/redfish/v1/Systems/1"
SEL = "/redfish/v1/Managers/1/LogServices/Sel"


def link(path):
    return {"@odata.id": path}


def entry(number, **more):
    return {"@odata.id": f"{SEL}/Entries/{number}", "Message": f"event {number}", **more}


def documents(*pages):
    """Return a BMC whose manager has one log, with these pages of entries."""
    found = {
        SYSTEM: {"Links": {"ManagedBy": [link("/redfish/v1/Managers/1")]}},
        "/redfish/v1/Managers/1": {"LogServices": link("/redfish/v1/Managers/1/LogServices")},
        "/redfish/v1/Managers/1/LogServices": {"Members": [link(SEL)]},
        SEL: {"Entries": link(f"{SEL}/Entries")},
    }
    for number, members in enumerate(pages):
        more = {"Members@odata.nextLink": f"{SEL}/Entries?$skip={number + 1}"} if number + 1 < len(pages) else {}
        found[f"{SEL}/Entries" + (f"?$skip={number}" if number else "")] = {"Members": members, **more}
    return found


def read(bmc):
    steps = read_logs(SYSTEM)
    wanted = next(steps)
    while True:
        try:
            wanted = steps.send({each.path: bmc.get(each.path) for each in wanted})
        except StopIteration as done:
            return done.value


def test_the_entries_of_all_pages_are_read():
    bmc = documents([entry(1, Severity="Critical", Created="2026-11-28T18:00:00Z", Oem={"x": 1})], [entry(2)])
    assert read(bmc) == {
        SEL: [
            {"Created": "2026-11-28T18:00:00Z", "Severity": "Critical", "Message": "event 1"},
            {"Message": "event 2"},
        ]
    }


def test_a_log_of_the_system_is_read_once_where_its_manager_has_the_same():
    bmc = documents([entry(1)])
    bmc[SYSTEM]["LogServices"] = link("/redfish/v1/Managers/1/LogServices")
    assert read(bmc) == {SEL: [{"Message": "event 1"}]}


def test_a_bmc_without_logs_has_none():
    assert read({SYSTEM: {"Id": "1"}}) == {}


def test_what_a_bmc_sends_is_bounded_and_cannot_control_a_terminal():
    bmc = documents([entry(number, Message="\x1b[2J" + "y" * 9000) for number in range(1500)])
    (entries,) = read(bmc).values()
    assert len(entries) == 1000
    assert len(entries[0]["Message"]) <= 410
    assert entries[0]["Message"].isprintable()


def test_pages_without_an_end_are_not_followed_for_ever():
    bmc = documents([entry(1)])
    bmc[f"{SEL}/Entries"]["Members@odata.nextLink"] = f"{SEL}/Entries"
    assert len(read(bmc)[SEL]) <= 20


def test_a_link_to_another_server_is_refused():
    bmc = documents([entry(1)])
    bmc[SEL]["Entries"] = link("https://elsewhere.example/log")
    with pytest.raises(RedfishError, match="not a path of the service"):
        read(bmc)


def test_the_logs_of_a_host_are_a_file_of_their_user_alone(tmp_path):
    file = keep_logs(tmp_path / "logs", "gpu-01", "2026-11-28T18:00:00Z", {SEL: [{"Message": "x"}]})
    assert (file.name, file.stat().st_mode & 0o777) == ("gpu-01-2026-11-28T180000Z.json", 0o600)
    assert json.loads(file.read_text()) == {SEL: [{"Message": "x"}]}
