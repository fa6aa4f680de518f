# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of instances over several hosts: roles, ranks, variables and ports of each host."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import endpoint_of, listening_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import PlanError

from tests.fakes.plans import A3, CPU, GIB, H200, MANIFESTS, MI300X, PLACES, RELEASE, plan, plans, recipe, refusal

EVERY = [
    "single_node_tp", "multi_node_tp", "multi_node_tep", "multi_node_tp_pp", "multi_node_dep", "multi_node_tp_dp",
]  # fmt: skip
SPANS = {"nodes": ["h1", "h2", "h3"], "strategy": "multi_node_tp"}


def spanning(host="h1", **requested):
    return plan({**SPANS, **requested}, a_recipe=recipe(compatible_strategies=EVERY), host=host)


def refused(site=None, host="h1", accelerator=H200, **requested):
    a_recipe = recipe(compatible_strategies=EVERY)
    return refusal({**SPANS, **requested}, accelerator, a_recipe, host=host, site=site)


@pytest.mark.parametrize(
    ("strategy", "roles", "port"),
    [
        ("multi_node_tp", ["head", "worker", "worker"], 29501),
        ("multi_node_tep", ["head", "worker", "worker"], 29501),
        ("multi_node_tp_pp", ["head", "worker", "worker"], 29501),
        ("multi_node_dep", ["peer", "peer", "peer"], 29550),
        ("multi_node_tp_dp", ["head", "worker", "worker"], 29550),
    ],
)
def test_the_group_of_each_strategy_and_rank(strategy, roles, port):
    found = [spanning(host, strategy=strategy).as_dict() for host in SPANS["nodes"]]
    assert [one["group"]["role"] for one in found] == roles
    assert [one["group"]["rank"] for one in found] == [0, 1, 2]
    assert [one["group"]["watched"] for one in found] == [["10.0.0.2", "10.0.0.3"], ["10.0.0.1"], ["10.0.0.1"]]
    assert {one["group"]["port"] for one in found} == {port}
    assert {one["group"]["head_address"] for one in found} == {"10.0.0.1"}
    # Who accepts no requests is told no address to listen on.
    assert ["headless" in one["config"] for one in found] == [role == "worker" for role in roles]
    assert ["port" in one["config"] for one in found] == [role != "worker" for role in roles]
    assert [bool(one["listen"]) for one in found] == [role != "worker" for role in roles]


@pytest.mark.parametrize("strategy", EVERY[1:])
def test_what_each_host_of_a_group_gets_is_read_on_it(strategy):
    """site.yml asks on every host, a worker too, with the readers of an instance that it has just written."""
    for host in SPANS["nodes"]:
        found = spanning(host, strategy=strategy).as_dict()
        text = yaml.safe_dump(dict(found["config"]))
        _url, models = endpoint_of(text)
        assert models and (listening_of(text) is None) == (found["group"]["role"] == "worker")


def test_the_hosts_of_a_group_differ_in_nothing_but_who_they_are():
    head, worker = (spanning(host).as_dict() for host in ("h1", "h2"))
    assert {key for key in head["args"] if head["args"][key] != worker["args"].get(key)} == {"node-rank"}
    assert {key for key in worker["args"] if key not in head["args"]} == {"headless"}
    own = {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}
    assert {key for key in head["env"] if head["env"][key] != worker["env"][key]} == own
    assert (worker["env"]["VLLM_HOST_IP"], worker["env"]["NCCL_SOCKET_IFNAME"]) == ("10.0.0.2", "eth2")
    assert (worker["args"]["master-addr"], worker["args"]["master-port"]) == ("10.0.0.1", 29501)


@pytest.mark.parametrize(
    ("accelerator", "site", "names"),
    [
        (CPU, {}, {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME"}),
        (MI300X, {}, {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}),
        (
            H200,
            {"fabric": {"hca": ["mlx5_0", "mlx5_1"], "gid_index": 3}},
            {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"},
        ),
        (
            A3,
            {},
            {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_IF_IP", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"},
        ),
    ],
    ids=lambda value: getattr(value, "model", None),
)
def test_the_variables_of_each_stack(accelerator, site, names):
    a_recipe = recipe(compatible_strategies=EVERY)
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    common = {"a_recipe": a_recipe, "site": site, "manifests": small}
    alone = plan({"strategy": "single_node_tp"}, accelerator, **common)
    grouped = plan(SPANS, accelerator, **common)
    assert set(grouped.env) - set(alone.env) == names
    if site:
        assert (grouped.env["NCCL_IB_HCA"], grouped.env["NCCL_IB_GID_INDEX"]) == ("mlx5_0,mlx5_1", "3")


def test_a_site_can_override_the_variables_of_a_group():
    assert spanning(env={"NCCL_SOCKET_IFNAME": "bond0"}).env["NCCL_SOCKET_IFNAME"] == "bond0"


def test_an_instance_on_one_host_has_no_group():
    assert "group" not in plan().as_dict()


def test_a_build_of_another_name_is_served_by_the_command_of_all_others():
    module = {**RELEASE, "stacks": {"cpu": {**RELEASE["stacks"]["cpu"], "entrypoint": "module"}}}
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    common = {"a_recipe": recipe(compatible_strategies=EVERY), "manifests": small, "release": module}
    for requested in ({"strategy": "single_node_tp"}, SPANS):
        found = plan(requested, CPU, **common)
        assert found.launch[0].endswith("/bin/vllm") and found.launch[1:] == ["serve"]
        assert found.venv["distribution"] == "2.0.0+cpu"


def test_what_cannot_span_hosts():
    assert refused(host="h4") == "vllm_instances.chat.nodes: h4 is not among the nodes h1, h2, h3"
    assert refused(site={"members": {"h1": PLACES["h1"]}}) == (
        "vllm_instances.chat.nodes: no address of h2, h3 is known; set vllm_cluster_network to the network that the "
        "hosts of a group share, such as 10.20.0.0/24"
    )
    assert refused(nodes=["h1", "h1"]) == "vllm_instances.chat.nodes: found ['h1', 'h1'], expected each host once"
    same = {"h1": PLACES["h1"], "h2": PLACES["h1"], "h3": PLACES["h3"]}
    assert "two hosts have the same address (h1 10.0.0.1, h2 10.0.0.1" in refused(site={"members": same})
    assert refused(args={"distributed-executor-backend": "ray"}) == (
        "vllm_instances.chat.args.distributed-executor-backend: found 'ray', expected 'mp' for an instance with nodes: "
        "since 0.13 vLLM spans hosts by itself, and Ray would be a second cluster without a password that fails in the "
        "same way; leave it out"
    )
    assert refused(group_port=70000).startswith("vllm_instances.chat.group_port: found 70000, expected")


def test_two_groups_of_one_head_meet_at_different_ports():
    entry = {"recipe": "org/model", **SPANS, "args": {"gpu-memory-utilization": 0.4}}
    both = {"a": {**entry, "chips": [0, 1, 2, 3]}, "b": {**entry, "chips": [4, 5, 6, 7], "port": 8001}}
    a_recipe = recipe(compatible_strategies=EVERY)
    with pytest.raises(PlanError) as caught:
        plans(both, a_recipe=a_recipe)
    assert str(caught.value) == (
        "vllm_instances.b.group_port: 29501, at which its hosts meet, is a port of vllm_instances.a too; set another "
        "group_port on all hosts of vllm_instances.b"
    )
    both["b"]["group_port"] = 29502
    assert [one.args["master-port"] for one in plans(both, a_recipe=a_recipe)] == [29501, 29502]
    both["b"]["group_port"] = 8000
    with pytest.raises(PlanError, match=r"is a port of vllm_instances[.]a too"):
        plans(both, a_recipe=a_recipe)


def test_a_group_knows_the_hosts_of_the_other_groups_of_its_host():
    common = {**SPANS, "recipe": "org/model"}
    requested = {
        "first": {**common, "nodes": ["h1", "h2"], "chips": [0]},
        "second": {**common, "nodes": ["h1", "h3"], "chips": [1], "group_port": 29511, "port": 8001},
    }
    found = plans(requested, a_recipe=recipe(compatible_strategies=EVERY), host="h1")
    assert [one.as_dict()["group"]["beside"] for one in found] == [["10.0.0.3"], ["10.0.0.2"]]
    assert "beside" not in spanning().as_dict()["group"]
