# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom the records of an instance may charge."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import Client, map_text, maps_of
from ansible_collections.baremetal.inference.plugins.module_utils.usage.rights_host import MOST_OTHERS, Rights

from tests.fakes.usage_records import part, record

CLIENTS = (
    Client("all", ()),
    Client("chat", (), services=("chat",), team="research"),
    Client("adapter", (), services=("chat=sql", "other")),
    Client("other", (), services=("other",), team="product"),
)


def server(name="gw--1", service="chat"):
    return {"name": name, "service": service, "models": ["m"]}


@pytest.fixture
def rights(tmp_path):
    def write(*clients):
        for name, entries in maps_of(clients).items():
            (tmp_path / name).write_text(map_text(entries))

    write(*CLIENTS)
    found = Rights(str(tmp_path), "gw1", ["gw2"])
    found.write = write
    return found


@pytest.mark.parametrize(
    ("client", "team", "kept"),
    [
        ("all", "-", True), ("all", "", True), ("chat", "research", True), ("adapter", "-", True),
        # A client has lost its team, and its gateway has not, or not yet.
        ("chat", "-", True),
        ("other", "product", False), ("all", "research", False), ("chat", "product", False),
        # Another gateway's client, or none: in no team of this gateway.
        ("else", "-", True), ("else", "theirs", True), ("", "", True), ("-", "-", True), ("else", "research", False),
        ("*", "research", False), ("chat:chat", "product", False),
    ],
)  # fmt: skip
def test_a_record_charges_who_may_use_the_service(rights, client, team, kept):
    found = part(record(1, client=client, team=team, gateway="gw2"))
    assert rights.check(server("gw--1", "chat"), [found]) == (not kept)
    assert (found.records[0]["client"], found.records[0]["team"]) == (
        (client, team) if kept else ("unknown", "unknown")
    )


def test_a_right_that_was_just_given_counts_and_one_that_was_just_taken_does_too(rights):
    rights.write(
        Client("new", (), services=("chat",), team="late"), Client("other", (), services=("chat",), team="late")
    )
    for client, team in (("new", "late"), ("other", "late"), ("other", "product"), ("chat", "research")):
        assert rights.check(server("gw--1", "chat"), [part(record(1, client=client, team=team))]) == 0
    assert rights.check(server("gw--1", "other"), [part(record(1, client="new", team="late"))]) == 1


@pytest.mark.parametrize("text", ["", "\n\n", "x", ":", "a b c d\n", "\0 \xff", ": 1\n"])
def test_maps_that_are_missing_or_odd_hold_nobody_back(tmp_path, text):
    (tmp_path / "rights.map").write_text(text)
    (tmp_path / "teams.map").write_text(text)
    found = Rights(str(tmp_path), "gw1", ["gw2"])
    assert found.check(server(), [part(record(1, gateway="gw2"))]) == 0


@pytest.mark.parametrize(
    ("gateway", "client", "kept"),
    [
        ("gw1", "all", ("gw1", "all")), ("gw1", "-", ("gw1", "-")), ("gw2", "else", ("gw2", "else")),
        # A client that its own gateway would know, and a gateway that the site does not have.
        ("gw1", "else", ("gw1", "unknown")), ("gw3", "all", ("unknown", "all")),
    ],
)  # fmt: skip
def test_a_record_names_a_gateway_of_the_site_and_of_this_one_its_clients(rights, gateway, client, kept):
    found = part(record(1, client=client, team="-", gateway=gateway))
    rights.check(server(), [found])
    assert (found.records[0]["gateway"], found.records[0]["client"]) == kept


def test_a_server_names_a_bounded_number_of_others_and_leaves_room_for_other_servers(rights):
    many = [record(1, client=f"c{n}", team="-", model=f"m{n}", gateway="gw2") for n in range(2000)]
    found = part(*many)
    assert rights.check(server(), [found]) == 2000 - MOST_OTHERS
    for kind in ("client", "model"):
        assert len({each[kind] for each in found.records}) == MOST_OTHERS + 1
    later = part(
        *(
            record(1, client=name, team="-", gateway="gw2", model=model)
            for name, model in (("c1999", "m"), ("all", "x"))
        )
    )
    assert rights.check(server("gw--2"), [later]) == 0 and later.records[1]["model"] == "x"
    assert rights.check(server(), [later]) == 1
    # What it served for a known client counts for that one.
    assert (later.records[1]["client"], later.records[1]["model"]) == ("all", "unknown")
