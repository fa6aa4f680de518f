# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's counters, and which servers of a service leave it."""

from __future__ import annotations

import contextlib

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.service_watch import (
    Counted,
    ServiceWatch,
    read_servers,
)
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.verdict import Watched

from tests.fakes.fuzz import assert_enough, cases, mutated_text, told_apart, within

STAT = (
    "# pxname,svname,status,hrsp_5xx,bout,check_health,check_rise,\n"
    "chat,gpu-1--chat,UP,3,918,4,2,\nchat,BACKEND,UP,3,918,,,\n\n"
)


def test_whatever_haproxy_counts_it_is_read_or_a_value_error():
    read = 0
    for label, choose in cases("agent-stat", 400):
        with told_apart(label):
            text = mutated_text(choose, STAT).rstrip("\n") + "\n\n"
            with contextlib.suppress(ValueError):
                found = within(60, lambda text=text: read_servers(text))
                read += bool(found)
                assert all(isinstance(each.errors, int) for each in found.values())
    assert_enough(read, 50, "read")


def test_the_counters_have_the_check_of_haproxy_itself_and_no_frontends():
    assert read_servers(STAT) == {"gpu-1--chat": Counted(True, True, errors=3, sent=918, look=("UP", 0))}
    assert not read_servers(STAT.replace(",4,2,", ",1,2,"))["gpu-1--chat"].healthy
    assert read_servers(STAT.replace(",4,2,", ",2,2,"))["gpu-1--chat"].healthy
    # A server without a check, and one that answers 404 to its check because it stops.
    assert read_servers(STAT.replace(",4,2,", ",,,"))["gpu-1--chat"].healthy
    assert not read_servers(STAT.replace(",UP,", ",NOLB,"))["gpu-1--chat"].healthy
    with pytest.raises(ValueError, match="incomplete"):
        read_servers(f"Unknown command.\n{STAT}")
    with pytest.raises(ValueError, match="incomplete"):
        read_servers(STAT.rstrip("\n"))


def test_bytes_of_its_router_move_an_engine_and_errors_of_the_router_do_not_count():
    watched = Watched(60, 60)
    watch = ServiceWatch({"a": {"name": "a", "service": "chat"}}, {"a": watched}, 1)
    server = Counted(up=True, healthy=True, errors=0, sent=0)
    for now, sent in ((1.0, 5), (2.0, 9)):
        watch.update({"a": server, "router:a": Counted(up=True, healthy=True, errors=sent, sent=sent)}, now)
    assert (watched.flowed_at, watched.errors) == (2.0, ())


def test_a_sick_server_is_spare_only_while_its_service_keeps_enough_others():
    servers = {name: {"name": name, "service": "chat"} for name in "ab"}
    watched = {name: Watched(60, 60, verdict="up") for name in "ab"}
    watched["b"].sick = "isolate_host xid 79"
    up = {name: Counted(up=True, healthy=True, errors=0, sent=0) for name in "ab"}
    assert ServiceWatch(servers, watched, 1).update(up, 0.0) == "" and watched["b"].answer.startswith("down #sick")
    assert ServiceWatch(servers, watched, 2).update(up, 0.0) == "" and watched["b"].answer.startswith("up #sick")
    assert ServiceWatch(servers, watched, 1).update({}, 0.0) == "no server"


def up_by_service(may_be_empty=(), **services):
    """Return what a gateway says of services: each a list of hosts, and how many of its first servers are up."""
    servers, found = {}, {}
    for service, (hosts, up) in services.items():
        for number, host in enumerate(hosts):
            name = f"{host}--{service}"
            servers[f"{host}:{8000 + len(servers)}"] = {"name": name, "service": service}
            found[name] = Counted(up=number < up, healthy=True, errors=0, sent=0)
    watched = {address: Watched(60, 60, verdict="up") for address in servers}
    return ServiceWatch(servers, watched, 1, may_be_empty).update(found, 0.0)


def test_an_engine_that_is_taken_over_does_not_move_the_shared_address():
    big = (["a", "b", "c"], 3)
    assert up_by_service(toy=(["lab"], 0)) == "no server"
    assert up_by_service(toy=(["lab"], 0), other=(["a"], 1)) == ""
    # Replicas that are stopped are no hosts that are lost, and many instances of a host are one host.
    assert up_by_service(toy=(["lab"], 0), big=(["a", "b", "c"], 1)) == ""
    assert up_by_service(one=(["lab"], 0), two=(["lab"], 0), three=(["lab"], 0), four=(["lab"], 0), big=big) == ""
    # What it shares a host with is served there by others.
    assert up_by_service(toy=(["a"], 0), big=big) == ""


def test_a_gateway_that_has_lost_most_hosts_is_without_servers():
    assert up_by_service(big=(["a", "b", "c"], 0), toy=(["lab"], 1)) == "no server"
    assert up_by_service(["big"], big=(["a", "b", "c"], 0), toy=(["lab"], 1)) == ""
    assert up_by_service(["big"], big=(["a", "b", "c"], 0), toy=(["lab"], 0)) == "no server"
    assert up_by_service(["big"], big=(["a", "b", "c"], 0)) == up_by_service() == ""
