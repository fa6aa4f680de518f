# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of instances that share chips."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table, releases
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning import residents
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import PlanError

from tests.fakes import plans as fakes
from tests.fakes.plans import A3, CPU, GIB, H200, MANIFESTS, MI300X, plan, plans, refusal

ENV = {"VLLM_SERVER_DEV_MODE": "1", "OPERATOR_GUARD": "1", "RESIDENTS": "a"}


def pair(chat=None, coder=None, accelerator=H200, **more):
    """Return the plans of two instances that share chips, by their names."""
    instances = {
        "chat": {"recipe": "org/model", "port": 8000, "residents": "a", **(chat or {})},
        "coder": {"recipe": "org/model", "port": 8100, "residents": "a", **(coder or {})},
    }
    return {one.instance: one for one in plans(instances, accelerator, **more)}


def refused(*given, **more):
    with pytest.raises(PlanError) as caught:
        pair(*given, **more)
    return str(caught.value)


@pytest.mark.parametrize("accelerator", [H200, MI300X], ids=["h200", "mi300x"])
def test_instances_that_share_chips_have_the_same_ones(accelerator):
    found = pair(accelerator=accelerator)
    assert {one.instance: one.chips for one in found.values()} == {"chat": [0, 1], "coder": [0, 1]}
    for one in found.values():
        assert one.args["enable-sleep-mode"] is True and one.config["enable-sleep-mode"] is True
        assert {name: one.env.get(name) for name in ENV} == ENV
        assert one.as_dict()["residents"] == "a"
        assert not [line for line in one.warnings if "residents" in line or "RESIDENTS" in line or "GUARD" in line]
    steps = {line["key"]: line for line in found["chat"].explain}
    assert "enable-sleep-mode" in steps and "env.OPERATOR_GUARD" in steps


def test_ascend_has_sleep_mode_too():
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    found = pair(accelerator=A3, manifests=small)
    assert found["chat"].chips == found["coder"].chips


def test_other_instances_get_the_other_chips():
    instances = {
        name: {"recipe": "org/model", "port": 8000 + 100 * number, **more}
        for number, (name, more) in enumerate(
            {
                "alone": {},
                "b1": {"residents": "b"},
                "b2": {"residents": "b", "chips": [4, 5]},
                "c1": {"residents": "c"},
                "c2": {"residents": "c", "replicas": 1},
            }.items()
        )
    }
    found = {one.instance: one.chips for one in plans(instances)}
    assert found == {"alone": [0, 1], "alone-2": [2, 3], "b1": [4, 5], "b2": [4, 5], "c1": [6, 7], "c2": [6, 7]}


def test_each_may_use_the_memory_as_if_it_were_alone():
    share = {"args": {"gpu-memory-utilization": 0.95}}
    assert pair(share, share)["chat"].chips == [0, 1]
    same = {"chips": [0, 1], **share}
    apart = {"chat": {"recipe": "org/model", **same}, "coder": {"recipe": "org/model", "port": 1, **same}}
    with pytest.raises(PlanError, match="chip 0 is shared"):
        plans(apart)
    third = {"recipe": "org/model", "port": 7000, "chips": [0, 1]}
    with pytest.raises(PlanError, match="chip 0 is shared"):
        plans(
            {
                "x": third,
                "chat": {"recipe": "org/model", "residents": "a", "chips": [0, 1]},
                "coder": {"recipe": "org/model", "residents": "a", "port": 2},
            }
        )


def test_an_instance_without_residents_is_planned_as_before():
    found = plan()
    assert "residents" not in found.as_dict() and "enable-sleep-mode" not in found.args
    assert not {*ENV} & {*found.env}


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"residents": ""}, "chat.residents: found '', expected a name for the instances that share chips"),
        ({"residents": ["a"]}, "chat.residents: found ['a'], expected a name"),
        ({"residents": "a/b"}, "chat.residents: found 'a/b', expected a name"),
        ({"replicas": 2}, "chat.replicas: found 2 together with residents"),
        ({"nodes": ["h1", "h2"]}, "chat.residents: found 'a' together with nodes"),
        ({"prefill": ["h1"], "decode": ["h2"]}, "chat.residents: found 'a' together with prefill"),
        ({"args": {"api-server-count": 2}}, "chat.args.api-server-count: found 2 together with residents, expected 1"),
        ({"args": {"enable-sleep-mode": False}}, "chat.args.enable-sleep-mode: cannot be set here"),
        ({"env": {"OPERATOR_GUARD": None}}, "chat.env.OPERATOR_GUARD: cannot be set here"),
        ({"env": {"VLLM_SERVER_DEV_MODE": "0"}}, "chat.env.VLLM_SERVER_DEV_MODE: cannot be set here"),
    ],
)
def test_what_cannot_share_its_chips(requested, message):
    assert refused(requested).startswith(f"vllm_instances.{message}")


def test_data_parallel_copies_cannot_sleep_together():
    both = {"args": {"tensor-parallel-size": 1, "data-parallel-size": 2}}
    assert "chat.args.data-parallel-size: found 2 together with residents, expected 1" in refused(both, both)


def test_a_host_without_chips_has_no_sleep_mode():
    message = refusal({"residents": "a"}, CPU)
    assert message.startswith(
        "vllm_instances.chat.residents: found 'a' on a host with cpu, where vLLM has no sleep mode"
    )


@pytest.mark.parametrize(
    ("accelerator", "flags", "env"),
    [
        (H200, {"enable-sleep-mode"}, set()),
        (H200, set(), {"VLLM_SERVER_DEV_MODE"}),
        (MI300X, set(), {"VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE"}),
    ],
)
def test_a_release_without_sleep_mode_is_refused_with_one_that_has_it(monkeypatch, accelerator, flags, env):
    reduced = {name: entry for name, entry in fakes.FLAGS.items() if name not in flags}
    variables = [name for name in fakes.ENV if name not in env]
    newer = OptionTable.from_data({"version": "3.0.0", "flags": fakes.FLAGS, "env": fakes.ENV})
    monkeypatch.setattr(fakes, "TABLE", OptionTable.from_data({"version": "2.0.0", "flags": reduced, "env": variables}))
    monkeypatch.setattr(fakes, "OTHERS", (newer,))
    expected = (
        f"chat.residents: vLLM 2.0.0 (release '2.0') has no sleep mode on {accelerator.model}; choose vllm_release"
    )
    assert expected in refused(accelerator=accelerator) and "'3.0.0' or newer" in refused(accelerator=accelerator)


def test_different_chips_are_refused():
    message = refused({"args": {"tensor-parallel-size": 4}})
    assert message.startswith("vllm_instances.coder.residents: chat uses 4 chips and coder 2; instances that share")
    message = refused({"chips": [0, 1]}, {"chips": [2, 3]})
    assert message.startswith("vllm_instances.coder.chips: found [2, 3], and [0, 1] of vllm_instances.chat")


def test_the_host_needs_memory_for_the_weights_that_sleep():
    """Each model has 64 GiB of weights."""
    assert pair(accelerator=replace(H200, host_memory_mib=128 * 1024))
    message = refused(accelerator=replace(H200, host_memory_mib=127 * 1024))
    assert "in the memory of the host: chat 64.0 GiB, coder 64.0 GiB, together 128.0 GiB; the host has 127.0" in message


def test_the_kv_cache_in_the_memory_of_the_host_counts_beside_them(monkeypatch):
    flags = {**fakes.FLAGS, "kv-offloading-size": {"kind": "number"}}
    monkeypatch.setattr(fakes, "TABLE", OptionTable.from_data({"version": "2.0.0", "flags": flags, "env": fakes.ENV}))
    cache = {"args": {"kv-offloading-size": 8}}
    assert pair(cache, accelerator=replace(H200, host_memory_mib=136 * 1024))
    message = refused(cache, accelerator=replace(H200, host_memory_mib=135 * 1024))
    assert "together 128.0 GiB, beside 8.0 GiB of KV cache and other data; the host has 135.0 GiB" in message


def test_sleep_mode_without_residents_counts_too():
    """Nobody knows on which level it will sleep, so this is no reason to refuse it."""
    asleep = {"args": {"enable-sleep-mode": True}, "replicas": 2}
    assert not asleep_warnings(asleep, 128)
    (found,) = asleep_warnings(asleep, 127)
    assert "in the memory of the host: chat 128.0 GiB, together 128.0 GiB; the host has 127.0 GiB" in found
    assert found.endswith("let them sleep on level 2, which keeps none, or take enable-sleep-mode away")
    assert not asleep_warnings({"args": {"enable-sleep-mode": False}}, 1)


def test_the_weights_of_a_draft_model_sleep_too():
    draft = {"speculative-config": {"model": "org/draft", "num_speculative_tokens": 3}}
    asleep = {"args": {"enable-sleep-mode": True, **draft}, "replicas": 1}
    manifests = {**fakes.MANIFESTS}
    manifests["org/draft"] = {**manifests["org/draft"], "files": {"a.safetensors": {"size": 3 * fakes.GIB}}}
    assert not asleep_warnings(asleep, 67, manifests)
    assert "chat 67.0 GiB" in asleep_warnings(asleep, 66, manifests)[0]


def asleep_warnings(requested, gib, manifests=None):
    accelerator = replace(H200, host_memory_mib=gib * 1024)
    found = plan(requested, accelerator=accelerator, manifests=manifests)
    return [line for line in found.warnings if "sleeping instances" in line]


def test_sleeping_instances_keep_a_little_of_each_chip():
    message = refused({"args": {"gpu-memory-utilization": 0.995}})
    assert message.startswith("vllm_instances.chat.args.gpu-memory-utilization: 0.995 leaves 0.7 GiB of each h200, and")
    assert message.endswith("the instances that sleep beside it keep about 3.5 GiB; set it to 0.97")
    assert pair({"args": {"gpu-memory-utilization": 0.97}})


def test_a_name_that_only_one_instance_has_is_reported():
    warnings = plan({"residents": "a"}).warnings
    assert [line for line in warnings if "no other instance of this host has the name 'a'" in line]


def test_an_amd_chip_for_which_sleep_mode_was_not_made_is_reported():
    other = replace(MI300X, model="r9700", generation="gfx1201")
    assert [line for line in pair(accelerator=other)["coder"].warnings if "r9700 is gfx1201" in line]


def test_what_the_catalogued_releases_can_do():
    able = {
        stack: {version for version in releases() if residents._can_sleep(load_table(version), stack)}
        for stack in residents.STACKS
    }
    assert able["cuda"] == able["cann"] == set(releases())
    assert able["cuda"] - able["rocm"] == {"0.10.2", "0.11.0"}
