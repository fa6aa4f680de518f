# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.routing import (
    listeners_of,
    services_by_model,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayService

BOTH = {"chat": ["chat", "big"], "next": ["chat"]}


def services(names, ports=None):
    return {
        name: GatewayService(name, (ports or {}).get(name, 443), models=list(models)) for name, models in names.items()
    }


def problems(names, entries, **ports):
    found, said = listeners_of(services(names, ports), [], entries)
    assert said and all(not listener.routes for listener in found)
    return " ".join(said)


def test_a_service_alone_at_its_port_has_no_routes():
    found, said = listeners_of(services(BOTH, {"next": 8443}), [], {})
    assert said == [] and [(each.port, each.shared, each.routes) for each in found] == [
        (443, False, []), (8443, False, []),
    ]  # fmt: skip
    assert found[0].as_dict()["name"] == "chat"


def test_a_name_goes_to_the_service_that_accepts_it():
    (listener,), said = listeners_of(services({"chat": ["chat", "a/b"], "quick": ["quick"]}), ["quick", "gone"], {})
    assert said == [] and listener.services == ["quick", "chat"]
    assert {route.model: list(route.shares) for route in listener.routes} == {
        "chat": ["chat"], "a/b": ["chat"], "quick": ["quick"],
    }  # fmt: skip


def test_shares_and_a_fallback_are_as_requested():
    names = {**BOTH, "quick": ["quick", "chat"]}
    entry = {"services": {"chat": 70, "next": 30}, "fallback": "quick"}
    found, said = listeners_of(services(names), [], {"chat": entry})
    assert said == []
    (route,) = (route for route in found[0].routes if route.model == "chat")
    assert route.as_dict() == {
        "model": "chat", "total": 100, "fallback": "quick",
        "targets": [{"service": "chat", "below": 70}, {"service": "next", "below": 100}],
        "rights": {"chat": "may:chat", "next": "may:next", "quick": "may:quick"},
    }  # fmt: skip
    models = services_by_model(services(names), found)
    assert models == {"chat": ["chat", "next", "quick"], "big": ["chat"], "quick": ["quick"]}


def test_a_fallback_alone_decides_between_two_and_a_share_of_nothing_is_none():
    (listener,), said = listeners_of(services(BOTH), [], {"chat": {"fallback": "next"}})
    assert (
        said == []
        and listener.routes[0].services == ["chat", "next"]
        and dict(listener.routes[0].shares) == {"chat": 1}
    )
    (listener,), said = listeners_of(services(BOTH), [], {"chat": {"services": {"chat": 5, "next": 0}}})
    assert said == [] and listener.routes[0].services == ["chat"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "model chat: the services chat, next accept this name; choose in gateway_models, as {chat: {services"),
        ({"chatt": {}}, "gateway_models.chatt: no service that shares a port accepts this name; nearest: 'chat'"),
        ({"chat": 5}, "gateway_models.chat: found 5, expected {services: {NAME: SHARE}, fallback: NAME}"),
        ({"chat": {"service": {}}}, "unknown key 'service'; nearest: 'services'"),
        ({"chat": {"services": ["chat"]}}, "found ['chat'], expected services with their shares, as {chat: 90, "),
        ({"chat": {"services": {"chat": 0}}}, "expected services with their shares"),
        ({"chat": {"services": {"chat": "9"}}}, "services.chat: found the text '9', expected a whole number from 0"),
        ({"chat": {"services": {"chat": True}}}, "services.chat: found true"),
        ({"chat": {"services": {"nxt": 1}}}, "'nxt' is not a service that shares a port; nearest: 'next'"),
        ({"big": {"services": {"next": 1}}}, "next does not accept the name big; add it to served_model_names of its"),
        ({"big": {"fallback": "next"}}, "gateway_models.big.fallback: next does not accept the name big"),
        ({"chat": {"services": {"chat": 1}, "fallback": "chat"}}, "chat is one of its services too"),
        ({"big": {"fallback": "chat"}}, "gateway_models.big.fallback: chat is the only service that accepts big"),
        ([], "gateway_models: found []"),
        ({"chat": {"fallback": ["next"]}}, "chat.fallback: found ['next'], expected the name of a service"),
        ({"chat": {"fallback": {"a": 1}}}, "chat.fallback: found {'a': 1}, expected the name of a service"),
    ],
)  # fmt: skip
def test_routes_that_cannot_be(entries, words):
    assert words in problems(BOTH, entries)


def test_a_name_that_no_request_can_have_and_one_at_two_ports():
    assert "cannot find the model name 'a b'" in problems({"chat": ["a b"], "quick": ["q"]}, {})
    four = {"a": ["chat"], "b": ["b"], "c": ["chat"], "d": ["d"]}
    assert "model chat: the services a, c accept this name on different ports" in problems(four, {}, c=1, d=1)
