# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import Backend
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.targets import Exporter, Gateway, decide


def plan(host="0.0.0.0", port=8000, **more):
    return {
        "listen": {"host": host, "port": port}, "replica_of": "chat", "accelerator": "h200", "vllm_version": "0.33.0",
        "config": {}, **more,
    }  # fmt: skip


def test_an_instance_a_host_and_a_gateway():
    plans = {"chat": plan(), "chat-2": plan("10.0.0.9", 8001, config={"ssl-certfile": "/x"})}
    found = decide(
        [Backend("gpu-01", "10.0.0.5", plans)],
        [Gateway("gw1", "fd00::1", "::", 8404, ("usage", "admission", "scale"))],
        {"gpu-01": "fra1"},
        9200,
    )
    own = {"cluster": "fra1", "host": "gpu-01"}
    of_chat = {**own, "service": "chat", "accelerator": "h200", "release": "0.33.0"}
    assert found.jobs == {
        "vllm": [
            {"targets": ["10.0.0.5:8000"], "labels": {**of_chat, "instance": "chat"}},
            {"targets": ["10.0.0.9:8001"], "labels": {**of_chat, "instance": "chat-2", "__scheme__": "https"}},
        ],
        "node": [{"targets": ["10.0.0.5:9200"], "labels": {**own, "instance": "gpu-01"}}],
        "haproxy": [{"targets": ["[fd00::1]:8404"], "labels": {"gateway": "gw1", "instance": "gw1"}}],
        "usage": [{"targets": ["[fd00::1]:8404"], "labels": {"gateway": "gw1", "instance": "gw1"}}],
        "admission": [{"targets": ["[fd00::1]:8404"], "labels": {"gateway": "gw1", "instance": "gw1"}}],
        "scale": [{"targets": ["[fd00::1]:8404"], "labels": {"gateway": "gw1", "instance": "gw1"}}],
    }
    assert found.warnings() == []


def test_what_listens_on_a_loopback_address_is_named_and_left_out():
    plans = {"chat": plan("127.0.0.1")}
    hosts = [Backend(f"gpu-0{number}", "10.0.0.5", plans) for number in (1, 2)]
    found = decide(hosts, [Gateway("gw1", "10.0.0.1", "127.0.0.1", 8404)], {})
    assert (found.jobs["vllm"], found.jobs["haproxy"], len(found.jobs["node"])) == ([], [], 2)
    assert found.jobs["usage"] == found.jobs["admission"] == found.jobs["scale"] == []
    first, second = found.warnings()
    assert (
        "gpu-01" in first
        and "gpu-02" in first
        and first.endswith("set vllm_instances.chat.host to an address of the host")
    )
    assert second.startswith("gw1: gateway_stats_listen is a loopback address")


def test_the_exporters_of_the_role_have_their_own_addresses_and_ports():
    hosts = [Backend(f"gpu-0{number}", f"10.0.0.{number}", {}) for number in (1, 2, 3, 4)]
    exporters = {
        "gpu-01": Exporter("::", 9200), "gpu-02": Exporter("fd00::2", 9100), "gpu-03": Exporter("127.0.0.1", 9100),
        "depot": Exporter("10.0.0.9", 9101),
    }  # fmt: skip
    found = decide(hosts, [], {}, 9300, exporters, {"depot": "depot.example"})
    assert {entry["labels"]["host"]: entry["targets"] for entry in found.jobs["node"]} == {
        "depot": ["10.0.0.9:9101"], "gpu-01": ["10.0.0.1:9200"], "gpu-02": ["[fd00::2]:9100"],
        "gpu-04": ["10.0.0.4:9300"],
    }  # fmt: skip
    (warning,) = found.warnings()
    assert warning.startswith("gpu-03: monitoring_node_listen is a loopback address, so it is not scraped")


def test_a_host_that_works_for_another_one_has_no_metrics_of_vllm():
    found = decide([Backend("gpu-02", "10.0.0.6", {"big": plan(group={"role": "worker"})})], [], {})
    assert found.jobs["vllm"] == [] and found.warnings() == []


@pytest.mark.slow
def test_ten_thousand_hosts_take_a_moment_and_give_valid_files():
    plans = {f"chat-{number}": plan(port=8000 + number) for number in range(8)}
    hosts = [Backend(f"gpu-{number:05}", f"10.1.{number // 250}.{number % 250}", plans) for number in range(10_000)]
    began = time.process_time()
    files = decide(hosts, [], dict.fromkeys((host.host for host in hosts), "fra1")).files()
    assert time.process_time() - began < 5
    assert len(json.loads(files["vllm.json"])) == 80_000 and json.loads(files["haproxy.json"]) == []
