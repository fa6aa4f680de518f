# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.table import (
    gateway_engines,
    gateway_instances,
    gateway_table,
)


def server(state="ready", up=True, why="", owner="", reason="", **more):
    entry = {
        "state": state,
        "up": up,
        "why": why,
        "owner": owner,
        "reason": reason,
        "since": "12:00",
        "backend": "chat",
    }
    return {**entry, "sessions": 3, "queued": 1, **more}


RESULTS = {
    "gw-2": {
        "servers": {"gpu-1--chat": server(), "gpu-1x--chat": server(up=False, why="down #hangs")},
        "backends": {"chat": {"ready": 1, "servers": 2}},
    },
    "gw-1": {
        "servers": {
            "gpu-1--chat": server("drain", owner="rollout", reason="wave 2"), "gpu-2--code": server("maint"),
            "gpu_3--big": server("drain"),
        },
        "backends": {"chat": {"ready": 0, "servers": 1}},
    },
}  # fmt: skip
BIG = [{"instance": "big", "hosts": ["gpu 3", "gpu-4", "gpu-5"]}]


def test_drained_servers_come_first_and_say_by_whom_and_why():
    lines = gateway_table(RESULTS, instances=BIG).splitlines()
    rows = [line.split() for line in lines[2:7]]
    assert [row[0] for row in rows] == ["gw-1", "gw-1", "gw-1", "gw-2", "gw-2"]
    text = {row[2]: " ".join(row) for row in rows[:3]}
    assert text["gpu-1--chat"].endswith("drained up 4 rollout since 12:00: wave 2")
    assert text["gpu-2--code"].endswith("maintenance up 4 by hand")
    assert "(with gpu-4, gpu-5) drained" in text["gpu_3--big"]
    # Of those in service, the ones that do not answer come first.
    assert rows[3][2] == "gpu-1x--chat" and "down: down #hangs" in lines[5] and lines[6].rstrip().endswith("4")
    assert lines[-2:] == [
        "chat has 0 of 1 servers in service at gw-1", "chat has 1 of 2 servers in service at gw-2",
    ]  # fmt: skip


def test_a_table_of_nothing_says_so():
    assert gateway_table({"gw-1": {"servers": {}, "backends": {}}}) == gateway_table({}) == "No gateway has servers."


def test_the_engines_of_a_host_are_its_own_and_those_that_it_shares():
    assert gateway_instances(RESULTS, "gpu-1") == ["chat"] and gateway_instances(RESULTS, "gpu") == []
    assert gateway_engines(RESULTS, "gpu-1", BIG) == [{"host": "gpu-1", "instance": "chat"}]
    assert gateway_engines(RESULTS, "gpu-5", BIG) == [{"host": "gpu 3", "instance": "big"}]
    assert gateway_engines(RESULTS, "gpu 3", BIG) == [{"host": "gpu 3", "instance": "big"}], "once"
