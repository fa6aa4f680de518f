# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.explain import (
    ExplainError,
    as_documents,
    command_line,
    command_lines,
    format_value,
    group,
    how_to_narrow,
    plan_table,
    select_instance,
    short_table,
)


def plan(host="gpu-1", instance="chat", size=2, **more):
    return {
        "host": host,
        "instance": instance,
        "replica_of": instance,
        "accelerator": "h200",
        "stack": "cuda",
        "generation": "hopper",
        "runtime": "container",
        "vllm_version": "0.33.0",
        "image": "vllm/vllm-openai:v0.33.0",
        "recipe": "openai/gpt-oss-120b",
        "variant": "default",
        "preset": "balanced",
        "strategy": "single_node_tp",
        "features": {"tool_calling": None, "spec_decoding": "eagle3"},
        "launch": [],
        "listen": {"host": "127.0.0.1", "port": 8000},
        "chips": [0, 1],
        "explain": [
            {
                "key": "tensor-parallel-size",
                "value": size,
                "layer": "presets.balanced",
                "because": "the best trade-off",
                "overrides": [{"layer": "variants.default", "value": 1}],
            },
            {"key": "env.A", "value": "", "layer": "model", "because": None, "overrides": []},
        ],
        **more,
    }


def test_hosts_with_the_same_plan_are_told_of_once():
    groups = group([plan("gpu-1"), plan("gpu-2"), plan("gpu-3", size=4)])
    assert [entry["hosts"] for entry in groups] == [["gpu-1", "gpu-2"], ["gpu-3"]]
    assert "chat on gpu-1, gpu-2\n" in plan_table([plan("gpu-1"), plan("gpu-2")])


def test_groups_can_be_grouped_again():
    assert group([*group([plan("gpu-1")]), plan("gpu-2")])[0]["hosts"] == ["gpu-1", "gpu-2"]


def test_a_setting_is_told_with_value_layer_reason_and_what_it_overrode():
    lines = plan_table([plan()]).splitlines()
    (line,) = [line for line in lines if line.startswith("  tensor-parallel-size")]
    assert line.split("  ")[1:] and "presets.balanced: the best trade-off" in line and "1 (variants.default)" in line
    assert any("env.A" in line and '""' in line for line in lines)


def test_what_was_chosen_stands_above_the_settings():
    text = " ".join(plan_table([plan()]).split())
    assert "recipe openai/gpt-oss-120b, variant default, preset balanced" in text
    assert "features tool_calling, spec_decoding (eagle3)" in text
    assert "container vllm/vllm-openai:v0.33.0" in text and "chips 0, 1" in text


def test_no_line_is_wider_than_a_terminal():
    wide = {"key": "compilation-config", "value": {f"key_{n}": list(range(30)) for n in range(9)}, "layer": "x" * 200,
            "because": "y " * 100, "overrides": []}  # fmt: skip
    text = plan_table([plan(explain=[wide], warnings=["w " * 200])])
    assert max(len(line) for line in text.splitlines()) <= 120
    assert text.count("x") >= 200


def test_of_a_replica_only_the_difference_is_told():
    replica = plan(instance="chat-2", replica_of="chat", listen={"host": "127.0.0.1", "port": 8001})
    replica["explain"] = [*replica["explain"], {"key": "env.CHIPS", "value": "2,3", "layer": "placement"}]
    told = plan_table([plan(), replica]).split("chat-2 on ")[1]
    assert "a replica of chat, listens on 127.0.0.1:8001" in told
    assert "env.CHIPS" in told and "tensor-parallel-size" not in told


def test_the_short_table_leaves_out_what_is_the_same_everywhere():
    own = {"key": "env.HOME", "value": "/var/cache", "layer": "collection", "because": "the instance's own place"}
    first = plan(explain=[*plan()["explain"], own])
    second = plan(instance="chat-2", replica_of="chat", listen={"host": "127.0.0.1", "port": 8001}, chips=[2, 3])
    told = short_table([first, second])
    assert "env.HOME" not in told and "tensor-parallel-size" in told
    assert "1 more settings are the collection's" in told
    assert "and 1 like it: chat-2 (listens on 127.0.0.1:8001, chips 2, 3)" in told


def test_hosts_that_serve_together_are_told_of_as_one():
    hosts = ["gpu-1", "gpu-2"]
    head = plan(group={"hosts": hosts, "rank": 0, "role": "head"})
    worker = plan("gpu-2", group={"hosts": hosts, "rank": 1, "role": "worker"}, listen={})
    worker["explain"] = [*head["explain"], {"key": "node-rank", "value": 1, "layer": "strategy"}]
    told = plan_table([head, worker])
    assert "one instance over gpu-1, gpu-2; this is its head" in told
    beside = told.split("chat on gpu-2")[1]
    assert "worker 1 of the instance on gpu-1; the rest is as there" in beside
    assert "node-rank" in beside and "tensor-parallel-size" not in beside


def test_the_evidence_stands_above_the_settings_and_not_again_with_replicas():
    first = plan(evidence="8,950 tokens/s at 64", replica_of="chat")
    second = plan(instance="chat-2", evidence="8,950 tokens/s at 64", replica_of="chat")
    lines = plan_table([first, second]).splitlines()
    assert lines.count("  evidence: 8,950 tokens/s at 64") == 1
    assert "evidence" not in plan_table([plan(evidence="")])


def test_warnings_stand_with_their_plan():
    assert "  warning: no manifest" in plan_table([plan(warnings=["no manifest"])])


def test_one_instance_comes_with_its_replicas():
    groups = group([plan(), plan(instance="chat-2", replica_of="chat"), plan(instance="quick")])
    assert [entry["instance"] for entry in select_instance(groups, "chat")] == ["chat", "chat-2"]


def test_above_plans_of_several_instances_a_line_says_how_to_see_fewer():
    plans = [plan(), plan(instance="chat-2", replica_of="chat"), plan(host="gpu-2", instance="quick", size=1)]
    assert how_to_narrow(group(plans)) == (
        "3 different plans on 2 hosts. To see fewer: -l HOSTS, -e explain_instance=NAME "
        "(`inference plan HOSTS --instance NAME`)\n\n"
    )
    assert how_to_narrow(group(plans[:2])) == how_to_narrow(group(plans[2:])) == ""


def test_an_unknown_instance_is_refused_with_the_nearest():
    with pytest.raises(ExplainError, match="explain_instance: no host has an instance 'chta'; nearest: 'chat'"):
        select_instance(group([plan()]), "chta")


def test_the_document_has_hosts_choice_and_settings():
    (entry,) = as_documents(group([plan("gpu-1"), plan("gpu-2")]))
    assert entry["hosts"] == ["gpu-1", "gpu-2"] and entry["preset"] == "balanced"
    assert entry["explain"][0]["overrides"] == [{"layer": "variants.default", "value": 1}]


def test_values_are_shown_as_people_write_them():
    assert [format_value(value) for value in (None, "", "a b", True, {"a": 1})] == [
        "(not set)", '""', "a b", "true", '{"a": 1}',
    ]  # fmt: skip


def test_the_command_is_one_line_that_a_shell_takes():
    env, argv = {"A": "a b", "B": '$x "y"'}, ["vllm", "serve", "/srv/m", "--compilation-config", '{"mode": 3}']
    line = command_line(plan(env=env, argv=argv))
    assert "\n" not in line and shlex.split(line) == ["env", "A=a b", 'B=$x "y"', *argv]
    shown = command_lines(group([plan(env=env, argv=argv), plan("gpu-2", env=env, argv=argv)]))
    assert shown == f"# chat on gpu-1, gpu-2\n{line}"
    script = shown.replace("vllm serve", "printf '%s|'")
    printed = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    assert printed.stdout == "|".join([*argv[2:], ""])
