# SPDX-License-Identifier: GPL-3.0-or-later
"""What gateways report becomes the state of a host."""

from __future__ import annotations

import re

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.service import (
    describe_answers,
    describe_services,
    services_table,
    with_service,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.table import fleet_table

WELL = {"state": "ready", "up": True, "why": "", "owner": "", "reason": "", "since": ""}
DOWN = {**WELL, "up": False, "why": "L4CON: Connection refused"}
NEEDED = {**WELL, "why": "sick, and the service needs it: restart_instance xid 39"}
DRAINED = {**WELL, "state": "drain", "owner": "admin:alice", "reason": "new fans", "since": "2026-11-22T03:01:00Z"}
BY_HAND = {**WELL, "state": "maint"}


def line(host="gpu-1", state="seen", why="", todo="", **more):
    return Line(host, "", "a", (("h200", 8),), state, why, todo, **more)


def shown(*gateways, lines=None):
    results = {f"gw{number}": {"servers": servers} for number, servers in enumerate(gateways, 1)}
    return [(each.state, each.why) for each in with_service(lines or [line()], results)]


@pytest.mark.parametrize(
    ("entry", "state", "why"),
    [
        (WELL, "serves", ""),
        (DOWN, "sick", "chat: down: L4CON: Connection refused"),
        (NEEDED, "sick", "chat: sick, and the service needs it: restart_instance xid 39"),
        (DRAINED, "drained", "chat: drained by admin:alice since 2026-11-22T03:01:00Z: new fans"),
        ({**DRAINED, "reason": "", "up": False}, "drained", "chat: drained by admin:alice since 2026-11-22T03:01:00Z"),
        (BY_HAND, "drained", "chat: drained by hand"),
    ],
)  # fmt: skip
def test_the_state_of_a_server_is_that_of_its_host(entry, state, why):
    assert shown({"gpu-1--chat": entry}) == [(state, why)]


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({}, "`inference undrain HOST`"),
        ({"owner": "rollout:20261130T141000Z"}, "`inference rollout`"),
        ({"reason": "removed from the host"}, "`inference apply gateways`"),
    ],
)
def test_the_advice_for_a_drained_host_is_that_of_its_reason(more, command):
    (found,) = with_service([line()], {"gw": {"servers": {"gpu-1--chat": {**DRAINED, **more}}}})
    assert command in found.todo


def test_a_replica_that_is_down_because_the_others_are_enough_is_well():
    scale = {"chat": {"idle": ["gpu-1--chat"]}}
    results = {"gw-a": {"servers": {"gpu-1--chat": DOWN}, "scale": scale}, "gw-b": {"servers": {"gpu-1--chat": DOWN}}}
    assert [each.state for each in with_service([line()], results)] == [line().state]
    results["gw-a"]["servers"] = {"gpu-1--chat": BY_HAND}
    assert with_service([line()], results)[0].why.startswith("chat: drained by hand")
    # Another one of the service is not.
    results["gw-a"] = {"servers": {"gpu-1--chat": DOWN}, "scale": {"chat": {"idle": ["gpu-2--chat"]}}}
    assert with_service([line()], results)[0].state == "sick"


def test_the_worst_of_several_servers_counts_and_all_reasons_stay():
    assert shown({"gpu-1--a": BY_HAND, "gpu-1--b": DOWN}) == [
        ("sick", "a: drained by hand; b: down: L4CON: Connection refused")
    ]


def test_what_only_some_gateways_report_names_them():
    assert shown({"gpu-1--chat": DOWN}, {"gpu-1--chat": WELL})[0][1].endswith("refused at gw1")
    assert shown({"gpu-1--chat": DOWN}, {"gpu-1--chat": DOWN})[0][1].endswith("refused")
    # A gateway of another service does not know the server.
    assert shown({"gpu-1--chat": DOWN}, {"gpu-2--code": WELL})[0][1].endswith("refused")


def test_a_worse_state_stays_with_both_reasons():
    conflict = line(state="conflict", why="declared 8, found 7", todo="correct it")
    assert shown({"gpu-1--chat": BY_HAND}, lines=[conflict]) == [
        ("conflict", "declared 8, found 7; chat: drained by hand")
    ]
    assert shown({"gpu-1--chat": DOWN}, lines=[conflict])[0][0] == "sick"


def test_hosts_whose_names_begin_alike_are_told_apart():
    hosts = [line("gpu"), line("gpu--1"), line("gpu-1")]
    assert [state for state, _why in shown({"gpu--1--chat": DOWN, "other--chat": DOWN}, lines=hosts)] == [
        "seen", "sick", "seen",
    ]  # fmt: skip


def test_a_service_has_a_row_with_what_where_since_when_and_how_fast():
    entry = {**WELL, "backend": "chat", "sessions": 3, "queued": 1, "changed_s": 7200, "downs": 0}
    # Each gateway counts the tokens of all; one has not read the last ones yet.
    rates = {"gw1": 1000.5, "gw2": 990.0}
    down = {**entry, "up": False, "why": "L7STS: 503", "sessions": 0, "changed_s": 180, "downs": 2}
    results = {
        gateway: {
            "servers": {"gpu-1--chat": entry, "gpu-2--chat": down, "gpu-1--code": {**entry, "backend": "code"}},
            "backends": {
                "chat": {"ready": 1, "servers": 2, "queued": 4},
                "code": {"ready": 1, "servers": 1, "queued": 0},
            },
            "tokens_per_s": {"openai/gpt-oss-20b": rate},
        }
        for gateway, rate in rates.items()
    }
    model = "openai/gpt-oss-20b"
    lines = [line("gpu-1", serves=(("chat", model),), planned=(("chat", "0.33.0"),), answers=(("chat", (model,)),))]
    _head, _rule, chat, code = services_table(results, lines, {"gw1": "https://192.0.2.10"}, 200)
    assert re.split(r"  +", chat) == [
        "chat", "openai/gpt-oss-20b", "0.33.0", "https://192.0.2.10, gw2", "1 of 2", "6", "12", "1,000.5",
        "gpu-2 down (L7STS: 503) for 3 min; went down 2 times",
    ]  # fmt: skip
    assert code.startswith("code ") and code.endswith("gpu-1 up for 2 h")
    assert services_table({"gw1": {"msg": "no socket"}}, lines, {}, 200) == []


@pytest.mark.parametrize(
    ("downs", "planned", "shown"),
    [
        (0, {}, ""),
        (1, {}, "; went down once"),
        (3, {"gpu-1--chat": 1}, "; went down 2 times; stopped as planned once"),
        (2, {"gpu-1--chat": 2}, "; stopped as planned 2 times"),
        # Of another service; and more than there were, from a gateway that says anything.
        (1, {"gpu-1--code": 1}, "; went down once"),
        (1, {"gpu-1--chat": 1000}, "; stopped as planned 1,000 times"),
    ],
)
def test_a_stop_that_was_asked_for_counts_as_no_fault(downs, planned, shown):
    entry = {**WELL, "backend": "chat", "sessions": 0, "queued": 0, "changed_s": 60, "downs": downs}
    result = {
        "servers": {"gpu-1--chat": entry, "gpu-1--code": {**entry, "backend": "code"}},
        "backends": {"chat": {"ready": 1, "servers": 1, "queued": 0}},
        "planned_stops": planned,
    }
    chat = services_table({"gw1": result, "gw2": result}, [line("gpu-1")], {}, 200)[2]
    assert chat.endswith(f"  gpu-1 up for 1 min{shown}")


def test_the_last_fault_of_a_service_has_a_column_where_the_hosts_were_read():
    entry = {**WELL, "backend": "chat", "sessions": 0, "queued": 0, "changed_s": 60, "downs": 0}
    servers = {"gpu--1--chat": entry, "gpu-2--chat": entry}
    results = {
        "gw1": {"servers": servers, "backends": {"chat": {"ready": 2, "servers": 2, "queued": 0}}, "tokens_per_s": {}}
    }
    faults = {"gpu--1": {"instances": {"chat-2": {"at": 1_795_000_000, "fault": "xid 64 of 0000:5d:00.0: A bad row"}}}}
    lines = [line(host, serves=(("chat", "m"),)) for host in ("gpu--1", "gpu-2")]
    head, _rule, chat = services_table(results, lines, {}, 200, None, faults)
    assert (
        "last fault  " in head and "  gpu--1 2026-11-18 11:06 UTC: xid 64 of 0000:5d:00.0  gpu--1 up for 1 min" in chat
    )
    assert services_table({}, lines, {}, 200, None, faults)[-1].endswith(
        "  gpu--1 2026-11-18 11:06 UTC: xid 64 of 0000:5d:00.0"
    )
    assert "fault" not in services_table(results, lines, {}, 200)[0]


def test_the_rate_of_a_service_is_that_of_the_names_by_which_clients_call_it():
    entry = {**WELL, "backend": "chat", "sessions": 0, "queued": 0, "changed_s": 60, "downs": 0}
    results = {
        "gw1": {
            "servers": {"gpu-1--chat": entry},
            "backends": {"chat": {"ready": 1, "servers": 1, "queued": 0}},
            "tokens_per_s": {"gpt": 10.0, "gpt-large": 5.5, "openai/gpt-oss-20b": 1.0},
        }
    }
    lines = [line(serves=(("chat", "openai/gpt-oss-20b"),), answers=(("chat", ("gpt", "gpt-large")),))]
    assert "  15.5  " in services_table(results, lines, {}, 200)[2]


def test_a_site_without_gateways_has_a_table_of_what_its_inventory_says():
    lines = [
        line(f"gpu-{number}", serves=(("chat", "openai/gpt-oss-20b"),), planned=(("chat", "0.33.0"),))
        for number in range(1, 7)
    ]
    (head, _rule, chat) = services_table({}, [*lines, line("spare")], {}, 200)
    assert head.split() == ["service", "model", "release", "hosts", "state"]
    assert re.split(r"  +", chat) == [
        "chat", "openai/gpt-oss-20b", "0.33.0", "gpu-1, gpu-2, gpu-3, gpu-4 and 2 more",
        "unknown: run verify.yml",
    ]  # fmt: skip
    assert services_table({}, [line()], {}, 200) == []


def test_a_site_without_gateways_says_which_instances_answer():
    lines = [line(name, serves=(("chat", "m"),)) for name in ("gpu-1", "gpu-2", "gpu-3")]
    answers = {
        "gpu-1": {"results": [{"item": "chat", "ok": True, "msg": "all passed"}]},
        "gpu-2": {"results": [{"item": "chat", "ok": False, "msg": "chat is not ready:\n the unit died" + "x" * 999}]},
        "gpu-3": {"results": [{"item": "chat", "unreachable": True, "msg": "refused"}], "unreachable": True},
        "mirror": {"results": []},
    }
    assert services_table({}, lines, {}, 200, answers)[-1].endswith("  1 of 3 answer")
    first, second = describe_answers(answers)
    assert first.startswith("gpu-2, chat: chat is not ready: the unit diedxx") and len(first) < 250
    assert second == "gpu-3, chat: refused"


def test_services_and_silent_gateways_are_listed():
    results = {
        "gw2": {"backends": {"chat": {"ready": 1999, "servers": 2000}}, "servers": {}},
        "gw1": {"msg": "gw1: no\nsocket"},
        "gw3": {},
    }
    assert describe_services(results) == [
        "gw1 was not read: gw1: no socket",
        "gw3 was not read: no answer",
    ]


def test_the_table_of_a_thousand_hosts_fits_a_screen_and_says_what_to_do():
    lines = [line(f"gpu-{number}") for number in range(1000)]
    servers = {f"gpu-{number}--chat": DOWN if number < 30 else WELL for number in range(1000)}
    text = fleet_table(with_service(lines, {"gw": {"servers": servers}}), 0)
    assert len(text) <= 60
    assert "sick, 30 hosts (the first 20): run `inference logs HOST INSTANCE`" in "\n".join(text)


@pytest.mark.parametrize("has_health", [False, True])
def test_the_health_service_is_named_only_where_the_site_has_it(has_health):
    lines = [line("gpu-1", has_health=has_health)]
    text = "\n".join(fleet_table(with_service(lines, {"gw": {"servers": {"gpu-1--chat": DOWN}}}), 0))
    assert "run `inference logs HOST INSTANCE`" in text
    assert ("vllm-health status" in text) is has_health


def test_a_service_that_follows_the_load_says_how_many_replicas_it_has_and_what_came_last():
    found = {"min": 1, "max": 4, "mode": "shadow", "waiting": 12, "replicas": {"serving": 1, "stopped": 2, "lost": 0}}
    last = "2026-11-28T03:01:00Z would start gpu-b--chat: 12 requests wait"
    results = {
        "gw-a": {"servers": {}, "scale": {"chat": {**found, "last": last}}},
        "gw-b": {"servers": {}, "scale": {}},
    }
    assert describe_services(results) == [
        f"chat has 1 serving, 2 stopped replicas, 12 requests wait; shadow, 1 to 4; last: {last} (gw-a decides)"
    ]


def test_the_busiest_teams_of_a_gateway_have_a_line_each():
    def row(number: int):
        return {
            "service": "chat", "class": "batch", "team": f"t{number:02}", "now": number, "requests": 2000,
            "waited": 300, "refused": 930, "first_answer_s": 4.2,
        }  # fmt: skip

    lines = describe_services({"gw-a": {"servers": {}, "admission": [row(number) for number in range(50)]}})
    assert len(lines) == 20
    assert lines[-1] == (
        "chat, class batch, team t49: 49 run or wait at gw-a; of 2,000 300 waited and 930 were refused; "
        "the class begins its answers after 4.20 s"
    )
