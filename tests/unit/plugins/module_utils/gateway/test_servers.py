# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import (
    RecordsError,
    Selection,
    ServersError,
    ServersRequest,
    check_request,
    decide_change,
    describe_faults,
    describe_server,
    read_records,
    records_document,
    select_servers,
    valid_record,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.state import HaproxyServer, HaproxyView

NOW, THEN = "2026-11-22T03:01:00Z", "2026-11-20T10:00:00Z"


def server(name, state="ready", up=True, backend="chat", **more):
    return HaproxyServer(name, backend, "10.0.0.1", 8000, state, up, **more)


def view(*servers):
    return HaproxyView(7, "7-1", {each.name: each for each in servers}, {})


def record(owner, state="drain", reason="why"):
    return {"owner": owner, "reason": reason, "since": THEN, "state": state}


def request(state="drained", owner="rollout:1", reason="", min_available=1, force=False):
    return ServersRequest(state, owner, reason, min_available, force, NOW)


def test_a_server_whose_instance_was_removed_is_returned_only_when_one_answers_again():
    removed = {"a--x": record("admin:al", reason="removed from the host")}
    again = request("ready", owner="admin:bo")
    with pytest.raises(ServersError, match=r"^a--x: its instance was removed .* `inference apply HOST`"):
        decide_change(view(server("a--x", "drain", up=False)), ["a--x"], again, removed)
    assert decide_change(view(server("a--x", "drain")), ["a--x"], again, removed).changed == ["a--x"]
    forced = request("ready", owner="admin:bo", force=True)
    assert decide_change(view(server("a--x", "drain", up=False)), ["a--x"], forced, removed).changed == ["a--x"]
    # One that was drained for another reason may still be starting.
    other = {"a--x": record("admin:al")}
    assert decide_change(view(server("a--x", "drain", up=False)), ["a--x"], again, other).changed == ["a--x"]


def test_draining_records_first_who_and_why():
    change = decide_change(view(server("a--x"), server("b--x")), ["a--x"], request(reason="fan"), {})
    assert change.commands == ["set server chat/a--x state drain"]
    assert change.records == {"a--x": {"owner": "rollout:1", "reason": "fan", "since": NOW, "state": "drain"}}
    assert (change.changed, change.held) == (["a--x"], [])


def test_what_is_drained_by_the_same_owner_stays_as_it_is_unless_the_reason_is_another():
    at, records = view(server("a--x", "drain"), server("b--x")), {"a--x": record("rollout:1")}
    assert decide_change(at, ["a--x"], request(reason="why"), records).changed == []
    change = decide_change(at, ["a--x"], request(reason="fan"), records)
    assert change.changed == ["a--x"] and change.commands == [] and change.records["a--x"]["since"] == THEN


@pytest.mark.parametrize(
    ("owner", "by", "taken", "freed"),
    [
        ("rollout:2", "rollout:1", True, True),
        ("rollout:2", "rollout:2", True, True),
        ("rollout:2", "admin:al", False, False),
        ("rollout:2", "", False, False),
        ("admin:al", "admin:al", True, True),
        ("admin:al", "admin:bo", False, True),
        ("admin:al", "", True, True),
        ("admin:al", "rollout:1", False, False),
        ("admin:al", "event:alertmanager", True, True),
        ("event:alertmanager", "event:alertmanager", True, True),
        ("event:other", "event:alertmanager", True, True),
        ("event:alertmanager", "admin:al", False, False),
        ("event:alertmanager", "", False, False),
        ("event:alertmanager", "rollout:1", False, False),
        ("rollout:2", "event:alertmanager", False, False),
    ],
)
@pytest.mark.parametrize("state", ["drain", "maint"])
def test_who_may_take_what(owner, by, taken, freed, state):
    at, records = view(server("a--x", state)), {"a--x": record(by, state)} if by else {}
    for force in (False, True):
        change = decide_change(at, ["a--x"], request(owner=owner, reason="new", force=force), records)
        assert (change.held, change.changed, change.commands) == (
            ([], ["a--x"], []) if taken or force else (["a--x"], [], [])
        )
        assert change.records.get("a--x", {}).get("owner", "") == (owner if taken or force else by)
        change = decide_change(at, ["a--x"], request("ready", owner, force=force), records)
        assert (change.held == []) is (freed or force) and bool(change.commands) is (freed or force)
        assert ("a--x" in change.records) is (bool(by) and not (freed or force))


def test_a_record_of_another_state_counts_for_nothing():
    records = {"a--x": record("rollout:1"), "b--x": record("rollout:1"), "gone--x": record("rollout:1")}
    at = view(server("a--x", "maint"), server("b--x"), server("c--x"))
    assert [dict(valid_record(each, records)) for each in at.servers.values()] == [{}, {}, {}]
    change = decide_change(at, ["a--x", "c--x"], request(), records)
    assert change.held == ["a--x"] and list(change.records) == ["c--x"]


def test_a_server_that_lost_its_weight_gets_it_back():
    change = decide_change(view(server("a--x", "drain", weightless=True)), ["a--x"], request("ready", "admin:al"), {})
    assert change.commands == ["set server chat/a--x state ready", "set server chat/a--x weight 100%"]


def test_looking_decides_nothing():
    change = decide_change(
        view(server("a--x", "drain")), ["a--x"], ServersRequest("status"), {"a--x": record("rollout:1")}
    )
    assert (change.commands, change.changed, change.held) == ([], [], []) and change.records["a--x"][
        "owner"
    ] == "rollout:1"


@pytest.mark.parametrize(
    ("servers", "names", "min_available", "words"),
    [
        (
            [server("a--x")],
            ["a--x"],
            1,
            "service chat: without a--x, no server would remain, but min_available is 1; return",
        ),
        ([server("a--x"), server("b--x")], ["a--x", "b--x"], 1, "without a--x, b--x, no server would remain"),
        ([server("a--x"), server("b--x")], ["a--x"], 2, "b--x would remain, but min_available is 2"),
        ([server("a--x"), server("b--x", "drain")], ["a--x"], 1, "(b--x is drained by rollout:9 (why)); return"),
        ([server("a--x"), server("b--x", "maint")], ["a--x"], 1, "(b--x is in maintenance by hand)"),
        ([server("a--x"), server("b--x", up=False, why="L4CON")], ["a--x"], 1, "(b--x is down (L4CON))"),
        ([server("a--x"), server("a--y", backend="quick")], ["a--x", "a--y"], 1, "service quick: without a--y"),
        ([server("a--x"), server("b--x", up=False)], ["a--x", "b--x"], 1, "without a--x, no server would remain"),
    ],
)
def test_too_few_would_stay(servers, names, min_available, words):
    with pytest.raises(ServersError) as raised:
        decide_change(view(*servers), names, request(min_available=min_available), {"b--x": record("rollout:9")})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("servers", "names", "min_available"),
    [
        ([server("a--x"), server("b--x")], ["a--x"], 1),
        ([server("a--x")], ["a--x"], 0),
        # Already out: nothing is taken from anybody.
        ([server("a--x", "drain")], ["a--x"], 1),
        # It serves nobody, so nobody loses it.
        ([server("a--x", up=False), server("b--x", up=False)], ["a--x", "b--x"], 1),
        ([server("a--x"), server("b--x"), server("b--y", backend="quick", up=False)], ["b--x", "b--y"], 1),
    ],
)
def test_enough_stay(servers, names, min_available):
    decide_change(view(*servers), names, request(min_available=min_available), {})


def test_several_are_refused_in_one_message():
    at = view(server("a--x"), server("a--y", backend="quick"))
    with pytest.raises(ServersError) as raised:
        decide_change(at, ["a--x", "a--y"], request(), {})
    assert len(str(raised.value).splitlines()) == 2


def test_servers_are_chosen_by_name_or_host():
    at = view(server("a--x"), server("a--y"), server("b--x"), server("h_1--x"))
    assert select_servers(at, Selection(["b--x", "b--x"], []), "gw") == ["b--x"]
    assert select_servers(at, Selection([], ["a"]), "gw") == ["a--x", "a--y"]
    assert select_servers(at, Selection(["b--x"], ["a", "h/1"]), "gw") == ["b--x", "a--x", "a--y", "h_1--x"]
    assert select_servers(at, Selection(), "gw") == ["a--x", "a--y", "b--x", "h_1--x"]


def test_an_instance_over_several_hosts_has_the_servers_that_the_gateway_knows():
    at = view(server("a--big"), server("c--x"))
    pair = Selection(hosts=["b"], groups=[["a--big", "b--big"]])
    assert select_servers(at, pair, "gw") == ["a--big"]
    assert select_servers(at, Selection(hosts=["c"], groups=pair.groups), "gw") == ["a--big", "c--x"]
    with pytest.raises(ServersError, match="none of the servers d--big, e--big, which are one instance"):
        select_servers(at, Selection(groups=[["d--big", "e--big"]]), "gw")
    with pytest.raises(ServersError, match="no server of the host d"):
        select_servers(at, Selection(hosts=["d"], groups=pair.groups), "gw")


@pytest.mark.parametrize(
    ("names", "hosts", "words"),
    [
        (["a--z", "b--x"], [], "gw: the gateway has no server a--z (nearest: 'a--x'); run playbooks/gateway.yml first"),
        ([], ["aa"], "gw: the gateway has no server of the host aa (nearest: 'a'); run playbooks/gateway.yml first"),
        ([], [""], "has no server of the host "),
    ],
)
def test_an_unknown_server_is_named(names, hosts, words):
    with pytest.raises(ServersError) as raised:
        select_servers(view(server("a--x"), server("b--x")), Selection(names, hosts), "gw")
    assert words in str(raised.value)


@pytest.mark.parametrize("owner", ["", "al", "rollout:", "admin: al", "root:x", "rollout:a b", "admin:al\n"])
def test_an_owner_has_a_kind_and_a_name(owner):
    with pytest.raises(ServersError, match="owner: found"):
        check_request(request(owner=owner), Selection(["a--x"], []))


def test_a_request_is_enough():
    check_request(ServersRequest("status"), Selection([], []))
    check_request(request(owner="admin:al.b-c@x"), Selection([], ["a"]))
    with pytest.raises(ServersError, match="servers: the list is empty, expected the servers to make ready"):
        check_request(request("ready"), Selection([], []))
    with pytest.raises(ServersError, match="min_available: found -1"):
        check_request(request(min_available=-1), Selection(["a"], []))


def test_records_survive_their_file():
    records = {"b--x": record("admin:al"), "a--x": record("rollout:1", "maint")}
    assert read_records(json.loads(json.dumps(records_document(records)))) == records
    assert list(records_document(records)["servers"]) == ["a--x", "b--x"]


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"schema": 2, "servers": {}}, {"schema": 1}, {"schema": 1, "servers": []},
     {"schema": 1, "servers": {"a": None}}, {"schema": 1, "servers": {"a": {"owner": "x"}}},
     {"schema": 1, "servers": {"a": {**record("x"), "since": 5}}}],
)  # fmt: skip
def test_a_damaged_file_is_told_of(data):
    with pytest.raises(RecordsError, match="expected"):
        read_records(data)


def test_further_fields_of_a_record_are_not_passed_on():
    assert read_records({"schema": 1, "servers": {"a": {**record("x"), "more": 1}}}) == {"a": record("x")}


@pytest.mark.parametrize(
    ("at", "by", "words"),
    [
        (server("a"), {}, "ready"),
        (server("a", up=False), {}, "down"),
        (server("a", up=False, why="L4CON"), {}, "down (L4CON)"),
        (server("a", "drain"), {"a": record("admin:al", reason="")}, "drained by admin:al"),
        (server("a", "drain"), {}, "drained by hand"),
        (server("a", "maint"), {"a": record("admin:al", "maint")}, "in maintenance by admin:al (why)"),
    ],
)
def test_servers_in_words(at, by, words):
    assert describe_server(at, by) == words


@pytest.mark.parametrize(
    ("now", "started", "words"),
    [
        (server("a", errors=5, requests=9), "7-1", []),
        (server("a", errors=7, requests=12), "7-1", ["a: 2 errors in 3 requests since it returned, expected none"]),
        (server("a", errors=7, requests=12), "8-2", []),
        (server("a", errors=5, up=False, why="L4CON"), "7-1", ["a was up and is down (L4CON)"]),
        # Somebody needs it elsewhere: that is no fault of the server.
        (server("a", "drain", errors=5), "7-1", []),
    ],
)
def test_servers_that_are_back_answer_without_errors(now, started, words):
    before = view(server("a", errors=5, requests=9), server("b", errors=1))
    assert describe_faults(before, HaproxyView(7, started, {"a": now, "b": server("b", errors=99)}, {}), ["a"]) == words
