# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.group_check import (
    Member,
    judge_all_reduce,
    judge_links,
)

from tests.fakes.fuzz import assert_enough, cases, mutated, told_apart

GROUP = {
    "name": "big",
    "hosts": ["a", "b"],
    "rank": 1,
    "role": "worker",
    "address": "10.0.0.2",
    "interface": "eth1",
    "head_address": "10.0.0.1",
    "peers": {"a": "10.0.0.1"},
    "watched": ["10.0.0.1"],
    "port": 29501,
}
B = Member("big", "b", GROUP, 29499)
HCA = {"name": "mlx5_0", "address": "", "ports": [{"port": 1, "state": "ACTIVE", "rate": "400", "link": "InfiniBand"}]}
DOWN = {**HCA, "name": "mlx5_1", "ports": [{**HCA["ports"][0], "state": "DOWN"}]}


@pytest.fixture
def results():
    link = {"problem": "", "seconds": 0.0004, "clock": 0.01, "mtu": 9000}
    own = {
        "groups": {"big": {"mtu": 9000, "links": {"a": link}}},
        "kernel": "6.1", "driver": "580.1", "rdma": [HCA], "redirecting": [], "translated": [],
    }  # fmt: skip
    return {"a": copy.deepcopy(own), "b": own}


def test_hosts_that_can_work_together(results):
    found = judge_links(B, results, {"hca": ["mlx5_0"]})
    assert (found.errors, found.warnings) == ([], [])
    assert found.lines[0] == "b to a: connected after 0.4 ms, packets of 9000 bytes"
    assert "mlx5_0 port 1: InfiniBand, 400, ACTIVE" in found.lines[1]


def test_a_pair_without_a_way(results):
    results["b"]["groups"]["big"]["links"]["a"]["problem"] = "no answer"
    assert judge_links(B, results, {}).errors == [
        "vllm_instances.big: b (10.0.0.2) does not reach a (10.0.0.1) at port 29499: no answer; open all ports "
        "between the hosts of a group"
    ]


@pytest.mark.parametrize(("mtu", "text"), [(1500, "packets of 1500 bytes do"), (0, "no size that was tried does")])
def test_packets_that_do_not_get_through(results, mtu, text):
    results["b"]["groups"]["big"]["links"]["a"]["mtu"] = mtu
    (error,) = judge_links(B, results, {}).errors
    assert "packets of 9000 bytes, the MTU of eth1, do not get from b (10.0.0.2) to a (10.0.0.1)" in error
    assert text in error


@pytest.mark.parametrize(("clock", "text"), [(5.04, "the clock of a is 5.0 s ahead of"), (-3, "a is 3.0 s behind")])
def test_clocks(results, clock, text):
    results["b"]["groups"]["big"]["links"]["a"]["clock"] = clock
    (warning,) = judge_links(B, results, {}).warnings
    assert text in warning


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("driver", "570.2", "driver 570.2 on b, and 580.1 on its head a"),
        ("kernel", "6.12", "kernel 6.12 on b, and 6.1 on its head a"),
        ("rdma", [HCA, DOWN | {"ports": HCA["ports"]}], "mlx5_0, mlx5_1 on b, and mlx5_0 on its head a"),
        ("rdma", [], "active RDMA devices are none on b"),
        ("redirecting", [f"0000:{n}:00.0" for n in range(10, 16)], "0000:13:00.0 and 2 more"),
        ("translated", ["0000:17:00.0"], "boot with iommu=pt"),
    ],
)  # fmt: skip
def test_what_slows_a_group_down(results, key, value, text):
    results["b"][key] = value
    (warning,) = judge_links(B, results, {}).warnings
    assert text in warning


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("mlx5_9", "found 'mlx5_9', which is no RDMA device of this host; nearest: "),
        ("mlx5_1", "'mlx5_1' is not active (DOWN)"),
        ("=mlx5", "found '=mlx5', which is no RDMA device"),
        ("mlx5_0:2", "'mlx5_0:2' is not active (no such port)"),
        ("", "found '', which is no RDMA device"),
    ],
)
def test_rdma_devices_that_cannot_be_used(results, word, text):
    results["b"]["rdma"] = [HCA, DOWN]
    (error,) = judge_links(B, results, {"hca": [word]}).errors
    assert error.startswith("b: vllm_fabric.hca: ") and text in error


@pytest.mark.parametrize("word", ["mlx5_0", "mlx5", "=mlx5_0:1", "^mlx5_1"])
def test_rdma_devices_as_nccl_names_them(results, word):
    results["b"]["rdma"] = [HCA, DOWN]
    assert judge_links(B, results, {"hca": [word]}).errors == []


def test_a_host_that_failed_before(results):
    assert "b has not tried the network" in judge_links(B, {"a": results["a"]}, {}).errors[0]
    # The head failed; what this host itself found out is still judged.
    assert judge_links(B, {"b": results["b"]}, {}).errors == []


def summed(**fields):
    own = {"problem": "", "phase": "measure", "missing": [], "gb_per_s": 40.0, "chips": 2, "networks": ["IB"]}
    return {**own, "versions": {"torch": "2.13.0", "nccl": "2.27.3"}, **fields}


def test_an_all_reduce():
    found = judge_all_reduce(B, {"a": summed(), "b": summed()}, 20)
    assert (found.errors, found.lines) == ([], ["b: all-reduce over 2 processes: 40 GB/s by IB"])


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        ({"gb_per_s": 1.5}, {}, "reached 1.5 GB/s, expected at least 20"),
        ({"versions": {"nccl": "2.26.2"}}, {}, "nccl 2.26.2 on b, and 2.27.3 on its head a"),
        ({"problem": "hosts did not join", "missing": ["a", "nobody"]}, {}, "hosts did not join: a (10.0.0.1)"),
        ({"problem": "it hung for 60 s", "phase": "measure"}, {"phase": "connect"}, "it hung for 60 s: a (10.0.0.1)"),
        ({"problem": "it hung for 60 s", "phase": "join"}, {"phase": "join"}, "all-reduce on b: it hung for 60 s"),
        ({"problem": "no torch", "phase": ["x"]}, {"phase": None}, "all-reduce on b: no torch"),
    ],
)
def test_an_all_reduce_that_fails(ours, theirs, text):
    (error,) = judge_all_reduce(B, {"a": summed(**theirs), "b": summed(**ours)}, 20).errors
    assert error.endswith(text) or text in error


def test_an_all_reduce_without_a_result():
    assert "it has no result" in judge_all_reduce(B, {}, 0).errors[0]


@pytest.mark.parametrize(("judge", "host"), [("links", "a"), ("links", "b"), ("all_reduce", "a"), ("all_reduce", "b")])
def test_no_answer_of_a_host_ends_the_check_of_its_group(results, judge, host):
    judges = {
        "links": (results, lambda found: judge_links(B, found, {"hca": ["mlx5_0"]})),
        "all_reduce": ({"a": summed(), "b": summed()}, lambda found: judge_all_reduce(B, found, 20)),
    }
    honest, judged = judges[judge]
    odd = 0
    for label, choose in cases(f"group.{judge}.{host}", 200):
        with told_apart(label):
            found = judged({**honest, host: mutated(choose, honest[host])})
            # What the head has found out itself is judged there.
            assert (judge, host) != ("links", "a") or found.errors == []
            odd += any("expected a" in text for text in found.errors)
    assert_enough(odd, 20 * (host == "b"), "odd answers that are named")
