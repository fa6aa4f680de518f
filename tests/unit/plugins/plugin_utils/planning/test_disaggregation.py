# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of instances some of whose hosts compute prompts for the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import directory_name, parse_lock
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_router
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.members import expand
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.disaggregation import router_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

HOSTS = ["d1", "d2", "p1"]
SITE = {
    "weights_root": "/srv/models",
    "encodings_dir": "/srv/encodings",
    "cache_root": "/var/cache/vllm",
    "venv_root": "/opt/vllm",
    "drain_timeout": 60,
    "release": "0.33.0",
    "members": {host: {"address": f"10.0.0.{rank}", "interface": "eth1"} for rank, host in enumerate(HOSTS, 1)},
}
INSTANCE = {
    "recipe": "openai/gpt-oss-120b", "strategy": "pd_cluster", "prefill": ["p1"], "decode": ["d1", "d2"],
    "host": "0.0.0.0",
}  # fmt: skip


def planned(host, model="h200", count=8, site=None, others=None, rdma=None, **requested):
    """Return the plans of a host with the instance ``big``."""
    wanted = {key: value for key, value in {**INSTANCE, **requested}.items() if value is not None}
    instances = expand({"big": wanted, **(others or {})}, {"all": HOSTS, "pod": ["d1", "d2"]})
    accelerator = declared_accelerator(load_catalogue(), model, count, facts={"rdma": rdma})
    return plan_host(host, accelerator, {**SITE, **(site or {}), "instances": instances})


def plan(host, **more):
    return planned(host, **more)["big"]


def refused(host="d1", **more):
    with pytest.raises(PlanError) as caught:
        planned(host, **more)
    return str(caught.value)


def connector(found):
    return json.loads(found["config"]["kv-transfer-config"])


def test_each_host_runs_a_whole_vllm_and_knows_its_side():
    first, second, prefill = (plan(host) for host in HOSTS)
    assert [each["group"]["role"] for each in (first, second, prefill)] == ["decode", "decode", "prefill"]
    assert {each["strategy"] for each in (first, second, prefill)} == {"single_node_tp"}
    assert not any("nnodes" in each["args"] or "headless" in each["args"] for each in (first, second, prefill))
    assert {json.dumps(each["group"]["hosts"]) for each in (first, second, prefill)} == {'["d1", "d2", "p1"]'}
    assert [connector(each)["kv_role"] for each in (first, prefill)] == ["kv_consumer", "kv_producer"]
    assert connector(first)["kv_connector"] == "NixlConnector"
    assert connector(first)["kv_load_failure_policy"] == "fail"
    # No host ends because another one is lost.
    assert first["group"]["watched"] == prefill["group"]["watched"] == []
    assert first["group"]["prefill"] == ["10.0.0.3:8000"]


def test_each_decode_host_has_a_router_for_its_own_vllm():
    first, prefill = plan("d2"), plan("p1")
    router = first["group"]["router"]
    assert "router" not in prefill["group"]
    assert (router["host"], router["port"], router["metrics"]) == ("0.0.0.0", 8300, 8301)
    # Where it listens on every address, the router asks it in the network of the hosts.
    assert router["decode"] == "http://10.0.0.2:8000"
    alone = router_of("10.0.0.2", {"host": "127.0.0.1", "port": 8000}, {}, "/opt/vllm", load_router())
    assert (alone["host"], alone["decode"]) == ("127.0.0.1", "http://127.0.0.1:8000")
    venv = router["venv"]
    text = Path(venv["requirements"]).read_text()
    assert venv["path"] == f"/opt/vllm/{directory_name(venv['name'], text)}"
    lock = parse_lock(text)
    # One lock for every host, and for a mirror the same by machine.
    lock, parts = parse_lock(text), [parse_lock(Path(each).read_text()) for each in venv["locks"]]
    assert lock.target is None and {part.target.machine for part in parts} == {"x86_64", "aarch64"}
    for name, pin in lock.pins.items():
        assert pin.hashes == frozenset().union(*(part.pins[name].hashes for part in parts))


def test_a_router_s_ports_are_its_own():
    assert plan("d1", router_port=9100)["group"]["router"]["port"] == 9100
    for port, owner in (
        (8000, "vllm_instances.big"),
        (7999, "vllm_instances.big"),
        (5603, "vllm_instances.big.group_port"),
    ):
        taken = max(port, 8000) if port > 7000 else port
        assert refused(router_port=port).endswith(
            f"vllm_instances.big.router_port: the router needs this port and the next one, and {taken} is a port of "
            f"{owner} too; set another router_port"
        )
    assert "65536 is beyond 65535; set another router_port" in refused(router_port=65535)
    assert "vllm_instances.big.router_port: found 0" in refused(router_port=0)


def test_only_decode_hosts_listen_for_clients():
    decode, prefill = plan("d2"), plan("p1")
    assert decode["listen"] == {"host": "0.0.0.0", "port": 8000}
    assert prefill["listen"] == {"host": "10.0.0.3", "port": 8000}
    assert prefill["config"]["host"] == "10.0.0.3"
    # One port of the connector for each of the chips, and on a prefill host its requests.
    assert decode["group"]["guarded"] == ["5600-5607"]
    assert prefill["group"]["guarded"] == ["5600-5607", "8000"]
    assert any("without an API key" in text for text in decode["warnings"])
    assert not any("without an API key" in text for text in prefill["warnings"])


def test_the_connector_talks_in_the_network_of_the_group():
    env = plan("p1", group_port=5700)["env"]
    assert (env["VLLM_NIXL_SIDE_CHANNEL_HOST"], env["VLLM_NIXL_SIDE_CHANNEL_PORT"]) == ("10.0.0.3", "5700")
    assert env["VLLM_HOST_IP"] == "10.0.0.3"
    assert "UCX_NET_DEVICES" not in env and "UCX_TLS" not in env
    fabric = {"fabric": {"hca": ["mlx5_0", "mlx5_1"]}}
    assert plan("p1", site=fabric)["env"]["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"


def test_each_chip_has_the_rdma_device_beside_it():
    near = [{"name": f"mlx5_{n}", "address": f"0000:{n}8:00.0", "near": {f"0000:{n}7:00.0": 3}} for n in range(8)]
    env = plan("p1", rdma=near)["env"]
    assert env["VLLM_GPU_NIC_PCIE_MAPPING"].startswith("0000:07:00.0=0000:08:00.0,0000:17:00.0=0000:18:00.0,")
    assert env["VLLM_NIC_SELECTION_VARS"] == "UCX_NET_DEVICES:1" and "UCX_NET_DEVICES" not in env
    # vLLM puts its own in front of what is set already, so a list of all devices would remain.
    some = plan("p1", rdma=near, site={"fabric": {"hca": ["mlx5_0"]}})["env"]
    assert some["UCX_NET_DEVICES"] == "mlx5_0:1" and "VLLM_GPU_NIC_PCIE_MAPPING" not in some


def test_on_ascend_the_connector_is_mooncake_s():
    found = connector(plan("p1", model="ascend_a3", count=16, site={"release": "0.23.0"}))
    assert (found["kv_connector"], found["kv_role"], found["kv_port"]) == ("MooncakeConnectorV1", "kv_producer", 36000)
    assert set(found["kv_connector_extra_config"]) == {"prefill", "decode"}
    # Neither it nor the transport below it knows a password, and they never take each other's ports.
    for model, count, guarded in (
        ("ascend_a3", 16, ["36000-36015", "20000-35999", "8000"]),
        ("ascend_a2", 8, ["28000-28007", "20000-27999", "8000"]),
    ):
        made = plan("p1", model=model, count=count, site={"release": "0.23.0"})
        assert made["group"]["guarded"] == guarded and "/etc/hccn.conf:/etc/hccn.conf:ro" in made["mounts"]
    assert "20000-" not in str(plan("p1")["group"]["guarded"]) and "hccn" not in str(plan("p1")["mounts"])
    assert found["engine_id"] == "2"


def test_a_group_s_name_stands_for_its_hosts_and_the_strategy_may_be_that_of_each_host():
    found = plan(
        "d2", decode="pod", strategy="single_node_tp", args={"kv-transfer-config.kv_load_failure_policy": "recompute"}
    )
    assert found["group"]["hosts"] == HOSTS
    assert connector(found)["kv_load_failure_policy"] == "recompute"
    assert plan("d2", strategy=None)["strategy"] == "single_node_tp"


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            {"decode": None},
            "decode: found nothing, expected a list of hosts or the name of an Ansible group, for prefill",
        ),
        ({"prefill": []}, "prefill: found [], expected a list of hosts or the name of an Ansible group, for prefill"),
        ({"nodes": ["d1", "d2"]}, "nodes: found together with decode; expected nodes, or prefill and decode"),
        ({"prefill": ["d1"]}, "prefill: d1 is named twice in prefill and decode; expected each host once"),
        ({"prefill": ["p2"]}, "prefill: the inventory has no host 'p2'; "),
        (
            {"decode": None, "prefill": None},
            "strategy: pd_cluster needs the hosts of both sides; expected prefill and ",
        ),
        ({"args": {"ssl-certfile": "/a"}}, "args.ssl-certfile: cannot be set together with prefill and decode, whose "),
        (
            {"release": "0.11.0", "recipe": "openai/gpt-oss-20b"},
            "prefill: needs kv-transfer-config.kv_load_failure_policy, which vLLM 0.11.0 (release '0.11.0') does not "
            "have; choose vllm_release '0.13.0' or newer",
        ),
        ({"runtime": "venv"}, "prefill: "),
        (
            {"strategy": "multi_node_tp"},
            "strategy: multi_node_tp splits the model over hosts, but each host of prefill and decode runs a ",
        ),
    ],
)
def test_what_cannot_be(requested, message):
    assert refused(**requested).startswith(f"vllm_instances.big.{message}")


def test_a_port_of_the_connector_that_another_instance_has():
    args = {"chips": [0, 1], "group_port": 5600}
    other = {"small": {"recipe": "openai/gpt-oss-20b", "chips": [2], "port": 5603}}
    assert refused("p1", others=other, **args) == (
        "vllm_instances.big.group_port: 5603, at which its hosts meet, is a port of vllm_instances.small too; set "
        "another group_port on all hosts of vllm_instances.big"
    )


def test_a_lock_without_nixl_is_refused():
    assert "has no nixl, which transfers the KV cache; use the runtime 'container'" in refused(runtime="venv")
