# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.ports import clashes, listens_of, taken_ports


def said(own, port, host="0.0.0.0", name="chat"):
    plan = {"listen": {"host": host, "port": port}, "replica_of": "chat"}
    return [text.partition(": ")[2] for text in clashes({name: plan}, taken_ports(own))]


@pytest.mark.parametrize(
    ("own", "ports"),
    [
        ({"monitoring_node_port": 8000}, []),
        ({"site_monitoring": "yes"}, [9100]),
        ({"site_monitoring": True, "monitoring_node_port": "8000"}, [8000]),
        ({"site_monitoring": True, "monitoring_node_port": "{{ mine }}"}, []),
        ({"site_monitoring": "{{ mine }}"}, []),
        ({"group_names": ["gateways"]}, [443, 8404, 8405]),
        ({"group_names": ["gateways"], "gateway_port": 8000, "gateway_tokens": True}, [8000, 8404, 8405, 8406]),
        ({"group_names": ["gateways"], "gateway_services": {"chat": {}}}, [8404, 8405]),
        ({"group_names": ["mirrors"]}, [80]),
        ({"group_names": ["mirrors"], "mirror_registry": True}, [80, 5000]),
        ({"group_names": ["inference"], "gateway_port": 8000}, []),
    ],
)
def test_the_ports_of_a_host_are_those_of_its_roles(own, ports):
    assert sorted(taken_ports(own)) == ports


def test_an_instance_and_another_program_have_the_same_port():
    own = {"site_monitoring": True, "monitoring_node_port": 8001}
    assert said(own, 8000) == []
    assert said(own, 8001) == ["8001 is the port of monitoring_node_port too; give the instance another"]
    replica = "8001 (of the replica chat-2) is the port of monitoring_node_port too; give the instance another"
    assert said(own, 8001, "127.0.0.1", "chat-2") == [replica]
    assert list(clashes({"chat": {"listen": {}, "replica_of": "chat"}}, taken_ports(own))) == []


def test_programs_at_different_addresses_may_have_the_same_port():
    own = {"group_names": ["gateways"], "gateway_listen": "10.0.0.1", "gateway_port": 8000}
    assert said(own, 8000, "127.0.0.1") == []
    assert said(own, 8000, "10.0.0.1") == ["8000 is the port of gateway_port too; give the instance another"]


def test_an_instance_without_a_port_of_its_own_listens_nowhere():
    worker = {"listen": {}, "replica_of": "wide"}
    replica = {"listen": {"host": "10.0.0.5", "port": 8001}, "replica_of": "chat"}
    assert listens_of({"wide": worker, "chat-2": replica}) == {"vllm_instances.chat.host": "10.0.0.5"}
