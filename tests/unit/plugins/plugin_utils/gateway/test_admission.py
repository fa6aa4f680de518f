# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.of_hosts import shares_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import Backend, GatewayError, decide

from tests.fakes.gateways import RunningGateway, client, options, plan

TEAMS = {"product": {"class": "gold"}, "research": {}, "nightly": {"class": "batch"}}


def decided(args=({},), **more):
    plans = {f"chat-{n}": plan(8000 + n, args=each) for n, each in enumerate(args)}
    return decide("gw", [Backend("gw", "127.0.0.1", plans)], options(**{"admission": "auto", "teams": TEAMS, **more}))


def places(**more):
    return [server.get("places") for server in decided(**more)["services"][0]["servers"]]


def test_the_plan_says_how_many_requests_a_server_works_on():
    args = [{"max-num-seqs": 8}, {"max-num-seqs": 8, "data-parallel-size": 4}, {}]
    assert places(args=args) == [8, 32, 256]


def test_a_site_says_how_many_by_itself():
    assert places(args=[{"max-num-seqs": 8}, {}], services={"chat": {"places": 5}}) == [5, 5]


def test_gateways_divide_the_places_and_leave_none_out():
    assert places(args=[{"max-num-seqs": 9}], shares={"gw": 2}) == [5]


@pytest.mark.parametrize(
    ("number", "args", "gateways", "expected"),
    [
        (4, {"max-num-seqs": 16}, 1, [0, 0, 0, 1]),
        (4, {"max-num-seqs": 16}, 2, [0, 0, 0, 1]),
        (2, {}, 1, [4, 4]),
        (1, {"max-num-seqs": 32}, 1, [1]),
        # One would be too much of them.
        (1, {"max-num-seqs": 31}, 1, [0]),
        (9, {"max-num-seqs": 7}, 1, [0] * 9),
        # Of so many servers some place becomes free often.
        (17, {}, 1, [0] * 17),
    ],
)
def test_a_few_places_are_kept_for_the_highest_class(number, args, gateways, expected):
    found = decided(args=[args] * number, shares={"gw": gateways})
    assert [server.get("kept", 0) for server in found["services"][0]["servers"]] == expected
    of_agent = [server["places"][2:] for server in found["agent"].values()]
    assert of_agent == [[each] if each else [] for each in expected]


@pytest.mark.parametrize(
    ("more", "favoured", "kept"),
    [
        ({}, "gold", [4]),
        ({"teams": {"nightly": {"class": "batch"}}}, "standard", [4]),
        ({"teams": {"research": {}}}, "", [None]),
        ({"admission": "shadow"}, "", [None]),
        ({"services": {"chat": {"affinity": "prefix"}}}, "gold", [None]),
    ],
)
def test_places_are_kept_where_classes_share_one_queue(more, favoured, kept):
    found = decided(**more)
    assert (found["favoured"], [server.get("kept") for server in found["services"][0]["servers"]]) == (favoured, kept)


def test_without_admission_there_are_no_places_and_no_classes():
    assert places(admission="off") == [None]
    assert decided(admission="off")["classes"] == {}
    assert decided()["classes"] == {"gold": ["product"], "batch": ["nightly"]}


@pytest.mark.parametrize(("policies", "ordered"), [(["priority"] * 2, True), (["priority", "fcfs"], False)])
def test_engines_order_their_queue_where_all_of_a_service_do(policies, ordered):
    found = decided(args=[{"scheduling-policy": policy} for policy in policies])
    assert found["services"][0]["ordered"] is ordered


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"teams": {"a": {"class": "golden"}}},
            "gateway_teams.a.class: found 'golden', expected one of gold, standard, batch; nearest: 'gold'",
        ),
        ({"teams": {"a": {"class": None}}}, "gateway_teams.a.class: found nothing, expected one of gold"),
        (
            {"services": {"chat": {"places": 0}}},
            "gateway_services.chat.places: found 0, expected a whole number from 1",
        ),
        ({"services": {"chat": {"places": 10**7}}}, "gateway_services.chat.places: found 10000000, expected a whole"),
        ({"services": {"chat": {"places": True}}}, "gateway_services.chat.places: found true, expected a whole number"),
        (
            {"services": {"chat": {"places": 9}}, "args": [{"max-num-seqs": 8}]},
            "gateway_services.chat.places: found 9, and gw--chat-0 works on 8 requests at a time (max-num-seqs); lower",
        ),
        (
            {"services": {"chat": {"places": 1}}, "shares": {"gw": 2}},
            "gateway_services.chat.places: found 1, and 2 gateways share the places of gw--chat-0; set it",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(more, expected):
    with pytest.raises(GatewayError) as caught:
        decided(**more)
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)


def test_a_service_with_prefill_hosts_is_not_held_back_and_a_warning_says_so():
    group = {"role": "decode", "router": {"port": 9000}}
    found = decide("gw", [Backend("gw", "127.0.0.1", {"chat": plan(8000, group=group)})], options(admission="auto"))
    assert "places" not in found["services"][0]["servers"][0]
    assert found["warnings"] == [
        "gateway_admission: chat has prefill hosts, and the gateway does not hold its requests back"
    ]


def test_gateways_with_one_address_have_one_share():
    groups = {"gateways": ["one", "two", "three"], "inference": ["a"], "all": ["a", "one", "two", "three"]}
    variables = {host: {} for host in groups["all"]}
    assert shares_of(["a"], groups, variables, "one") == {"a": 3}
    variables.update({name: {"gateway_address": "10.0.0.9/24"} for name in ("one", "two")})
    assert shares_of(["a"], groups, variables, "one") == {"a": 2}
    # A gateway of another group serves too.
    assert shares_of(["a"], {**groups, "gateways": []}, variables, "one") == {"a": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("access", "tokens", "affinity"), list(itertools.product(("text", "json"), (True, False), ("none", "session")))
)
def test_without_admission_classes_change_no_byte(tmp_path, access, tokens, affinity):
    def rendered(name, **more):
        chosen = {"tokens": tokens, "services": {"chat": {"affinity": affinity, **more.pop("service", {})}}, **more}
        (tmp_path / name).mkdir()
        variables = {"gateway_access_log": access}
        ports = {"stats_port": 1, "agent_port": 2, "port": 3}
        found = RunningGateway(
            tmp_path / name, [1], [client()], options={**chosen, **ports}, variables=variables, agent_port=2
        )
        text = (tmp_path / name / "haproxy.cfg").read_text().replace(str(tmp_path / name), "")
        return text.replace(str(found.stats_port), "").replace(found.paths["chroot"], "")

    before = rendered("before")
    assert rendered("after", teams=TEAMS, service={"places": 3}) == before
    for word in ("admission", "gateway:sca", "gateway-await", "priority-", " maxconn 3 agent", "txn.class"):
        assert word not in before
