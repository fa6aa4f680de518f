# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.baremetal.inference.plugins.filter.gateways import FilterModule

gateway_table = FilterModule().filters()["gateway_table"]
gateway_engines = FilterModule().filters()["gateway_engines"]


def entry(state="ready", up=True, **more):
    return {"backend": "chat", "state": state, "up": up, "why": "", "sessions": 0, "queued": 0, "owner": "",
            "since": "", "reason": "", "changed_s": 60, "downs": 0, **more}  # fmt: skip


RESULTS = {
    "gw1": {
        "servers": {
            "a--chat": entry(),
            "b--chat": entry(
                "drain", owner="admin:al", since="2026-11-22T03:01:00Z", reason="fans", sessions=2, queued=1
            ),
            "b--chat-2": entry("maint", up=False),
        },
        "backends": {"chat": {"ready": 1, "servers": 3, "queued": 0}},
    },
    "gw2": {
        "servers": {"a--chat": entry(up=False, why="L4CON: refused"), "b_1--chat": entry()},
        "backends": {"chat": {"ready": 0, "servers": 1, "queued": 0}},
    },
}


def test_what_is_out_of_service_stands_first():
    lines = gateway_table(RESULTS).splitlines()
    assert [line.split()[:3] for line in lines[2:7]] == [
        ["gw1", "chat", "b--chat-2"],
        ["gw1", "chat", "b--chat"],
        ["gw2", "chat", "a--chat"],
        ["gw1", "chat", "a--chat"],
        ["gw2", "chat", "b_1--chat"],
    ]
    assert lines[2].split()[3:] == ["maintenance", "down", "0", "by", "hand"]
    assert lines[3].endswith("  3        admin:al since 2026-11-22T03:01:00Z: fans")
    assert "down: L4CON: refused" in lines[4] and lines[5].split()[3:] == ["ready", "up", "0"]
    assert lines[-2:] == [
        "chat has 0 of 1 servers in service at gw2",
        "chat has 1 of 3 servers in service at gw1",
    ]


def test_gateways_without_servers():
    assert gateway_table({}) == gateway_table({"gw": {"servers": {}, "backends": {}}}) == "No gateway has servers."


BIG = [{"instance": "chat", "hosts": ["a", "z"]}]


def test_a_server_of_several_hosts_names_the_others():
    shown = gateway_table({"gw1": RESULTS["gw1"]}, instances=BIG)
    assert "a--chat (with z)" in shown and "b--chat (" not in shown


def test_engines_that_stop_with_a_host():
    assert gateway_engines(RESULTS, "a", []) == [{"host": "a", "instance": "chat"}]
    # z has no server of its own; the head's engine is the one that has to be idle.
    assert (
        gateway_engines(RESULTS, "z", BIG) == gateway_engines(RESULTS, "a", BIG) == [{"host": "a", "instance": "chat"}]
    )
    assert gateway_engines(RESULTS, "b", BIG) == [{"host": "b", "instance": name} for name in ("chat", "chat-2")]


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (5, "the answer: found 5, expected a mapping"),
        ({}, "no answer"),
        ({"servers": {"a": {}}, "backends": {}}, "servers.a.backend: found nothing, expected a text"),
        (
            {"servers": {"a--chat": entry(state="x")}},
            "servers.a--chat.state: found 'x', expected 'ready' or 'drain' or",
        ),
    ],
)
def test_a_gateway_that_answers_something_else_is_a_line_below_the_others(odd, reason):
    *lines, last = gateway_table({**RESULTS, "gw3": odd}).splitlines()
    assert lines == gateway_table(RESULTS).splitlines() and last.startswith(f"gw3 was not read: {reason}")
    # What is drained before its host is written must be known.
    with pytest.raises(AnsibleFilterError, match="gw3 was not read: "):
        gateway_engines({**RESULTS, "gw3": odd}, "a", [])


@pytest.mark.parametrize("wrong", [5, [1]])
def test_something_else_is_refused_in_words(wrong):
    with pytest.raises(AnsibleFilterError, match="gateway_table: expected results of gateway_server"):
        gateway_table(wrong)


@pytest.mark.parametrize("wrong", [5, {"gw": {}}, [1]])
def test_something_else_has_no_engines(wrong):
    with pytest.raises(AnsibleFilterError, match="gateway_engines: expected results of gateway_server"):
        gateway_engines(wrong, "a", [])
