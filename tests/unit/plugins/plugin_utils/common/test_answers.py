# SPDX-License-Identifier: GPL-3.0-or-later
"""What one host answers, whatever it is, changes no line about another one, and ends no table."""

from __future__ import annotations

from itertools import chain, starmap
from types import SimpleNamespace

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.action.fleet_page import ActionModule
from ansible_collections.baremetal.inference.plugins.filter.gateways import FilterModule
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.answers import (
    ANSWERS,
    SERVERS,
    STARTS,
    find_odd,
    readable,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.verify_document import (
    answers_table,
    checks_of,
    instances_of,
)

from tests.fakes.fuzz import assert_enough, cases, mutated, nasty, told_apart

FILTERS = FilterModule().filters()
HOSTS = ("a-1", "b-2", "c-3")
ODD = HOSTS[1]


@pytest.mark.parametrize(
    ("value", "shape", "problem"),
    [
        ({"a": 1}, {"a": float}, ""),
        ({"a": 1, "b": object()}, {"a": float, "c?": str}, ""),
        ({}, {"a": (str, None)}, ""),
        (["x", 1.5], [str, float], ""),
        ({"chat": [None]}, {str: [(str, None)]}, ""),
        (None, {}, "the answer: found nothing, expected a mapping"),
        ({1: 2}, {}, "the answer: found {1: 2}, expected a mapping"),
        ({}, {"a": {"b": str}}, "a: found nothing, expected a mapping"),
        ({"a": {"b": [True]}}, {"a": ({"b": [float]}, None)}, "a.b[0]: found true, expected a number"),
        ({"a": "x"}, {"a?": ("y", None)}, "a: found 'x', expected 'y' or nothing"),
        ({"a": None}, {"a?": str}, "a: found nothing, expected a text"),
        (["x"], [str, float], "the answer: found ['x'], expected a list of 2 entries"),
        (float("nan"), float, "the answer: found nan, expected a number"),
        (10**300, float, f"the answer: found {str(10**300)[:200]}..., expected a number"),
        (-1, range(9), "the answer: found -1, expected a whole number from 0 to 8"),
        ({"x" * 300: 1}, {str: str}, f"{'x' * 200}: found 1, expected a text"),
    ],
)
def test_the_first_odd_place_is_named(value, shape, problem):
    assert find_odd(value, shape) == problem


def test_a_negative_count_of_a_gateway_is_odd():
    answer = {"servers": {"a--chat": server(sessions=-5)}}
    assert find_odd(answer, SERVERS).startswith("servers.a--chat.sessions: found -5, expected a whole number from 0")


@pytest.mark.parametrize(
    ("answer", "shape", "place"),
    [
        ({"tokens_per_s": {"m": -0.1}}, SERVERS, "tokens_per_s.m"),
        ({"tokens_per_second": -0.1}, ANSWERS, "tokens_per_second"),
        ({"results": [{"item": "chat", "time_to_first_token_s": -0.1}]}, ANSWERS, "results[0].time_to_first_token_s"),
        ({"instances": {"chat": {"phases": [["imports", -0.1]], "ready": True, "seconds": 1}}}, STARTS, ""),
    ],
)
def test_a_negative_rate_or_duration_is_odd(answer, shape, place):
    told = find_odd(answer, shape)
    assert told.startswith(place) and ": found -0.1, expected a number from 0" in told


def test_an_odd_answer_is_replaced_by_what_is_odd():
    answers = {"a": {"n": 1}, "b": {"n": "1"}, "c": {"msg": "timed out"}}
    assert readable(answers, {"n?": float}) == {**answers, "b": {"msg": "n: found '1', expected a number"}}


def server(**more):
    return {"backend": "chat", "state": "ready", "up": True, "why": "", "sessions": 3, "queued": 1, "changed_s": 7200,
            "downs": 1, "owner": "", "reason": "", "since": "", **more}  # fmt: skip


def of_gateway(host):
    """Return the answer of a gateway of a service of its own."""
    down = server(backend=f"chat-{host}", up=False, why="L4CON: refused")
    drained = server(backend=f"chat-{host}", state="drain", owner="admin:al", since="2026-11-22T03:01:00Z", reason="x")
    scale = {"min": 1, "max": 4, "mode": "auto", "waiting": 2, "last": "", "replicas": {"serving": 1}, "idle": []}
    admission = {"service": f"chat-{host}", "class": "batch", "team": "t", "now": 12, "requests": 20, "waited": 3,
                 "refused": 9, "first_answer_s": 4.2}  # fmt: skip
    return {
        "changed": False,
        "servers": {f"{host}--chat": server(backend=f"chat-{host}"), f"{host}--x": down, f"{host}--y": drained},
        "backends": {f"chat-{host}": {"ready": 1, "servers": 3, "queued": 4}},
        "tokens_per_s": {"m": 1000.5},
        "planned_stops": {f"{host}--chat": 1},
        "scale": {f"chat-{host}": scale},
        "admission": [admission],
    }


def of_slots(host):
    del host
    slots = [{"digest": digest, "plan": {"release": f"0.{digest}", "args": {}}, "record": {}} for digest in ("1", "2")]
    chat = {"installed": True, "digest": "1", "good": slots[1], "previous": None, "slots": slots, "up": True,
            "stale": True, "group": {"hosts": ["a", "b"], "role": "head"}}  # fmt: skip
    return {"instances": {"chat": chat}, "turn": None}


def of_starts(host):
    return {"instances": {f"chat-{host}": {"phases": [["imports", 6.2]], "ready": True, "seconds": 74.0}}}


def of_faults(host):
    del host
    return {"instances": {"chat": {"at": 1_764_075_600, "fault": "xid 79: gone"}}}


def of_endpoint(host):
    check = {"name": "chat", "ok": True, "seconds": 0.1, "detail": "answered"}
    good = {"item": "chat", "ok": True, "checks": [check], "model": "m", "tokens_per_second": 80.2, "answer": host}
    bad = {"item": f"x-{host}", "ok": False, "failed": True, "checks": [{**check, "ok": False}], "msg": "is silent"}
    return {"results": [good, bad], "changed": False}


def of_usage(host):
    names = {"gateway": host, "client": f"client-{host}", "team": f"team-{host}", "model": "m"}
    numbers = dict.fromkeys(("requests", "aborted", "uncounted", "prompt", "cached", "completion"), 7)
    return {"rows": [{"hour": 1_764_075_600, **names, **numbers}], "gaps": [{"server": f"{host}--chat", "missing": 2}]}


def of_keys(host):
    client = {"keys": 1, "rate": "", "concurrent": "", "services": ["*"], "expires": "2020-01-31", "team": "t"}
    return {"present": {f"client-{host}": client}, "changed": False}


def fleet_page(**options):
    action = ActionModule.__new__(ActionModule)
    action._loader, action._task = DataLoader(), SimpleNamespace(check_mode=False, diff=False)
    chat = {"chat": {"recipe": "m", "release": "0.9"}}
    variables = {"accelerator": "h200", "accelerator_count": 8, "vllm_instances": chat, "group_names": ["inference"]}
    hostvars = SimpleNamespace(raw_get=lambda name: {"inventory_hostname": name, **variables})
    nothing = {"page": "", "title": "x", "gateways": {}, "installed": {}, "starts": {}, "faults": {}, "answers": {}}
    found = action.decide({**nothing, **options}, {"hostvars": hostvars, "ansible_play_hosts_all": list(HOSTS)})
    return "\n".join([*found["table"], found.get("msg", "")])


def rows_of(host, result):
    return [*checks_of(host, result), *instances_of(host, result)]


REQUESTS = {host: {"clients": {f"client-{host}": {"models": ["chat"]}}} for host in HOSTS}
TABLES = {
    "fleet_page.gateways": (of_gateway, lambda found: fleet_page(gateways=found)),
    "fleet_page.installed": (of_slots, lambda found: fleet_page(installed=found)),
    "fleet_page.starts": (of_starts, lambda found: fleet_page(starts=found)),
    "fleet_page.faults": (of_faults, lambda found: fleet_page(faults=found)),
    "fleet_page.answers": (of_endpoint, lambda found: fleet_page(answers=found)),
    "gateway_table": (of_gateway, FILTERS["gateway_table"]),
    "gateway_usage": (of_usage, FILTERS["gateway_usage"]),
    "gateway_usage.csv": (of_usage, lambda found: FILTERS["gateway_usage"](found, "csv")),
    "gateway_clients.keys": (of_keys, lambda found: FILTERS["gateway_clients"](REQUESTS, found, {})),
    "gateway_clients.usage": (
        of_usage, lambda found: FILTERS["gateway_clients"](REQUESTS, {host: of_keys(host) for host in HOSTS}, found)
    ),
    "answers_table": (of_endpoint, answers_table),
    "verify_json": (of_endpoint, lambda found: "\n".join(map(str, chain(*starmap(rows_of, found.items()))))),
}  # fmt: skip


def about_others(text):
    """Return the lines about the other hosts; how wide a column is and what is counted over all hosts may differ."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if ODD not in line and any(host in line for host in HOSTS)]


@pytest.mark.parametrize("name", TABLES)
def test_no_answer_ends_the_table_or_changes_the_lines_of_other_hosts(name):
    answer, table_of = TABLES[name]
    honest = {host: answer(host) for host in HOSTS}
    usual, odd = about_others(table_of(honest)), 0
    # The last fault of a service is in the line of all its hosts.
    assert len(usual) >= (0 if name == "fleet_page.faults" else len(HOSTS) - 1)
    for label, choose in cases(f"answers.{name}", 150):
        with told_apart(label):
            found = mutated(choose, honest[ODD]) if choose.random() < 0.9 else nasty(choose)
            # Ansible reads each answer from JSON.
            if name == "verify_json" and not isinstance(found, dict):
                continue
            text = table_of({**honest, ODD: found})
            assert about_others(text) == usual
            odd += "expected " in text
    assert_enough(odd, 0 if name == "gateway_usage.csv" else 20, "odd answers that the table names")
