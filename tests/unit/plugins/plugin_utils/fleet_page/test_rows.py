# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows that programs read are the values of the tables."""

from __future__ import annotations

import json
from dataclasses import replace

from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.rows import (
    fleet_rows,
    instance_rows,
    service_rows,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.service import (
    describe_services,
    with_service,
)

NOW = 1_795_000_000.0
WELL = {
    "backend": "chat",
    "state": "ready",
    "up": True,
    "why": "",
    "owner": "",
    "reason": "",
    "since": "",
    "sessions": 2,
    "queued": 1,
    "changed_s": 60,
}
DOWN = {**WELL, "up": False, "why": "L4CON: Connection refused", "sessions": 0, "queued": 0}
DRAINED = {**WELL, "state": "drain", "owner": "admin:alice", "reason": "new fans", "since": "2026-11-17T12:00:00Z"}
SERVES = {
    "serves": (("chat", "openai/gpt-oss-20b"),),
    "planned": (("chat", "0.33.0"),),
    "answers": (("chat", ("gpt-oss",)),),
}


def line(host="gpu-1"):
    return Line(host, "north", "a", (("h200", 8),), "seen", **SERVES)


def gateway(**servers):
    backends = {"chat": {"ready": 0, "servers": len(servers), "queued": 3}}
    named = {f"{name.replace('_', '-')}--chat": entry for name, entry in servers.items()}
    return {"servers": named, "backends": backends, "tokens_per_s": {"gpt-oss": 12.5}}


def rows(lines, results, answers=None, faults=None):
    addresses = {name: f"{name}.example" for name in results}
    instances = instance_rows(lines, results, addresses, answers or {}, faults or {}, NOW)
    return instances, service_rows(instances, results, lines)


def test_an_instance_has_host_service_state_and_advice_as_values():
    results = {"gw1": gateway(gpu_1=WELL, gpu_2=DOWN, gpu_3=DRAINED)}
    lines = [line("gpu-1"), line("gpu-2"), line("gpu-3")]
    instances, services = rows(lines, results)
    assert instances[0] == {
        "host": "gpu-1",
        "instance": "chat",
        "service": "chat",
        "model": "openai/gpt-oss-20b",
        "release": "0.33.0",
        "addresses": ["gw1.example"],
        "state": "serves",
        "why": "",
        "since": 1_794_999_940,
        "running": 2,
        "waiting": 1,
        "last_fault": None,
        "advice": "",
    }
    assert [row["state"] for row in instances] == ["serves", "sick", "drained"]
    assert instances[1]["why"] == "down: L4CON: Connection refused" and "logs gpu-2 chat" in instances[1]["advice"]
    # When it was drained, not when HAProxy was restarted.
    assert instances[2]["since"] == 1_795_003_200 - 86_400
    assert services == [
        {
            "service": "chat",
            "servers": 3,
            "ready": 1,
            "models": ["openai/gpt-oss-20b"],
            "releases": ["0.33.0"],
            "addresses": ["gw1.example"],
            "running": 4,
            "waiting": 5,
            "tokens_per_second": 12.5,
        }
    ]
    hosts = fleet_rows(with_service(lines, results))
    assert [(row["host"], row["state"], row["chips"]) for row in hosts] == [
        ("gpu-1", "serves", {"h200": 8}), ("gpu-2", "sick", {"h200": 8}), ("gpu-3", "drained", {"h200": 8}),
    ]  # fmt: skip
    json.dumps([instances, services, hosts])


def test_the_health_service_is_named_only_where_the_site_has_it():
    lines = [line("gpu-1"), replace(line("gpu-2"), has_health=True)]
    instances, _services = rows(lines, {"gw1": gateway(gpu_1=DOWN, gpu_2=DOWN)})
    assert [row["advice"] for row in instances] == [
        "run `inference logs gpu-1 chat`",
        "run `inference logs gpu-2 chat`; on the host, `vllm-health status`",
    ]


def test_requests_of_two_gateways_are_added_up_and_the_worse_state_counts():
    instances, services = rows([line()], {"gw1": gateway(gpu_1=WELL), "gw2": gateway(gpu_1=DOWN)})
    assert (instances[0]["state"], instances[0]["running"], len(instances[0]["addresses"])) == ("sick", 2, 2)
    assert (services[0]["servers"], services[0]["ready"]) == (1, 0)


def test_a_replica_that_is_not_needed_is_stopped_and_a_server_of_no_host_is_kept():
    result = gateway(gpu_1=DOWN, old=WELL)
    result["scale"] = {"chat": {"idle": ["gpu-1--chat"]}}
    instances, _services = rows([line()], {"gw1": result})
    assert [(row["host"], row["state"]) for row in instances] == [("gpu-1", "stopped"), ("old", "serves")]


def test_a_server_without_a_name_of_an_instance_is_shown_and_named():
    result = {**gateway(), "servers": {"evil": WELL}}
    instances, _services = rows([line()], {"gw1": result})
    assert [(row["host"], row["instance"]) for row in instances] == [("evil", ""), ("gpu-1", "chat")]
    assert describe_services({"gw1": result}) == ["gw1 has a server evil, expected names HOST--INSTANCE"]


def test_a_site_without_gateways_has_what_its_instances_answer():
    lines = [line("gpu-1"), line("gpu-2"), line("gpu-3")]
    answers = {
        "gpu-1": {"results": [{"item": "chat", "ok": True}]},
        "gpu-2": {"results": [{"item": "chat", "ok": False, "msg": "is not started"}]},
        "gpu-3": {"unreachable": True, "msg": "no route"},
    }
    fault = {"gpu-2": {"instances": {"chat": {"at": 1_794_000_000, "fault": "xid 64: bad"}}}}
    instances, services = rows(lines, {}, answers, fault)
    assert [row["state"] for row in instances] == ["serves", "sick", "unknown"]
    assert instances[1]["why"] == "is not started" and instances[1]["last_fault"]["text"] == "xid 64: bad"
    assert (services[0]["ready"], services[0]["running"]) == (1, None)
    assert [row["advice"] for row in instances][::2] == ["", ""] and "logs gpu-2 chat" in instances[1]["advice"]
