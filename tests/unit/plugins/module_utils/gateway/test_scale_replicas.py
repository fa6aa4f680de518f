# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.places import Load
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.scale import (
    ASLEEP,
    LOST,
    SERVING,
    STARTING,
    STOPPED,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.scale_replicas import (
    MOST,
    noticed_after,
    read_stat,
    replica_of,
    reported,
    shared_out,
    state_of,
    there_by,
)

# HAProxy 2.6.12, columns left out.
STAT = (
    "# pxname,svname,qcur,scur,status,\n"
    "chat,gpu-a--chat,3,16,UP,\nchat,gpu-b--chat,0,0,DRAIN,\nchat,gpu-c--chat,0,0,MAINT,\n"
    "chat,gpu-d--chat,0,0,DOWN 1/2,\nchat,gpu-e--chat,0,0,NOLB,\nchat,gpu-f--chat,0,0,UP 1/2,\n"
    "chat,BACKEND,5,16,UP,\nother,gpu-a--other,0,0,UP,\nother,BACKEND,0,2,UP,\n"
    "empty,gpu-a--empty,0,0,DOWN,\nempty,BACKEND,0,4,DOWN,\n\n"
)


def test_haproxy_tells_who_waits_who_serves_and_who_is_drained() -> None:
    seen = read_stat(STAT)
    # Those that wait for any server, and those that wait for one.
    assert seen.waiting == {"chat": 8, "other": 0, "empty": 4}
    assert seen.up == {"gpu-a--chat", "gpu-f--chat", "gpu-a--other"}
    assert seen.there["gpu-a--chat"] == 16
    assert seen.held == {"gpu-b--chat", "gpu-c--chat"}


@pytest.mark.parametrize("text", ["", STAT[:-1], STAT.replace("status", "state"), "Unknown command\n\n"])
def test_counters_that_are_not_complete_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HAProxy"):
        read_stat(text)


@pytest.mark.parametrize(
    ("instance", "up", "expected"),
    [
        (None, True, SERVING),
        (None, False, LOST),
        ({"active": "active", "seconds": 900, "spare": False}, True, SERVING),
        ({"active": "active", "seconds": 900, "spare": False}, False, LOST),
        # HAProxy's checks have not noticed it yet.
        ({"active": "active", "seconds": 3, "spare": False}, False, STARTING),
        ({"active": "activating", "sub": "start-post"}, False, STARTING),
        ({"active": "activating", "sub": "auto-restart"}, False, LOST),
        # Its engine ends at each start.
        ({"active": "activating", "sub": "start", "restarts": True}, False, LOST),
        ({"active": "active", "seconds": 900, "spare": False, "restarts": True}, True, SERVING),
        ({"active": "active", "seconds": 900, "spare": True}, True, ASLEEP),
        ({"active": "active", "seconds": 900, "spare": True}, False, ASLEEP),
        ({"active": "inactive", "stopped": True}, False, STOPPED),
        # A person has stopped it.
        ({"active": "inactive", "stopped": False}, False, LOST),
        ({"active": "failed", "stopped": True}, False, LOST),
        ({"active": "deactivating", "stopped": True}, False, LOST),
        ({}, True, LOST),
        ({"active": ["active"], "seconds": "x"}, True, LOST),
    ],
)
def test_the_state_of_a_replica_follows_from_its_unit_and_from_haproxy(instance: Any, up: bool, expected: str) -> None:
    assert state_of(instance, up) == expected


def test_a_gateway_that_checks_seldom_waits_longer_for_a_replica_that_has_started() -> None:
    young = {"active": "active", "seconds": 40, "spare": False}
    assert state_of(young, False, noticed_after(2)) == LOST
    # HAProxy takes it into service after two checks that succeed.
    assert state_of(young, False, noticed_after(10)) == STARTING


def test_a_replica_whose_host_does_not_answer_cannot_be_changed() -> None:
    server = {"places": 16, "resident": False}
    assert replica_of("a", server, None, True, False, 3).fixed
    assert not replica_of("a", server, {"active": "active"}, True, False, 3).fixed


def test_reports_of_other_gateways_are_added_and_may_be_anything() -> None:
    good = {"waiting": {"chat": 3, "other": 9}, "held": ["gpu-a--chat"]}
    odd = [None, [], {"waiting": []}, {"waiting": {"chat": "9"}}, {"waiting": {"chat": True}}, {"held": [1, {}]}]
    more = [{"waiting": {"chat": 10**30}, "held": {}}, {"waiting": {"chat": -5}}]
    assert reported([good, *odd, *more], "chat") == (3 + 10**6, {"gpu-a--chat"})


@pytest.mark.parametrize(
    ("there", "load", "expected"),
    [
        (5, (2, 3), (2, 3)),
        (0, (2, 3), (0, 0)),
        (4, (0, 0), (0, 0)),
        # It counts sequences: two requests with eight each.
        (2, (8, 8), (1, 1)),
        # Some wait in the middleware, and some came after the engine was asked.
        (9, (2, 1), (2, 1)),
        # It lies.
        (4, (MOST, 0), (4, 0)),
        (4, (0, MOST), (0, 4)),
    ],
)
def test_an_engine_says_only_which_part_of_its_requests_waits(there: int, load: Any, expected: Any) -> None:
    assert shared_out(there, Load(*load, 0.5, there)) == expected


def test_requests_at_other_gateways_are_theirs_and_may_be_anything() -> None:
    odd = (None, {}, {"there": []}, {"there": {"chat": "9"}}, {"there": {"chat": -4}})
    reports = {str(number): each for number, each in enumerate(odd)}
    reports["gw-a"], reports["gw-b"] = ({"there": {"chat": number, "other": 7}} for number in (5, 3))
    assert there_by(reports, "gw-a", "chat") == 3
    assert there_by({"gw-b": {"there": {"chat": 10**30}}}, "gw-a", "chat") == MOST
