# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import (
    load_exclusive,
    load_table,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import (
    Doubt,
    Foreign,
    OptionTable,
    Unknown,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.checks import (
    STOP_AT_VARIABLES,
    doubts_of,
    errors_of,
    exclusions,
    flags_as_values,
    judge,
    known_issues,
    option_problems,
    placeholders,
    stopping_variables,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError


def test_guards_refuse_or_warn():
    guards = [
        {"when": {"stack": "rocm"}, "refuse": "Never here."},
        {"when": {"args": {"x": "present"}}, "warn": "x is doubtful."},
        {"when": {"env": {"A": "absent"}, "secrets": {"A": "absent"}}, "refuse": "A is missing."},
    ]
    facts = {"stack": "cuda", "args": {"x": 1}, "env": {}, "secrets": {"A": True}}
    assert judge({"guards": guards}, facts, "vllm_instances.chat") == ["vllm_instances.chat: x is doubtful."]
    assert judge({}, facts, "vllm_instances.chat") == []
    with pytest.raises(PlanError) as caught:
        judge({"guards": guards}, {**facts, "secrets": {}}, "vllm_instances.chat")
    assert str(caught.value) == "vllm_instances.chat: A is missing."


def test_known_issues_of_this_hardware_only():
    issues = [
        {"symptom": "a", "advice": "A.", "when": {"generation": "blackwell"}},
        {"symptom": "b", "advice": "B."},
    ]
    assert known_issues({"known_issues": issues}, {"generation": ["hopper"]}) == [{"symptom": "b", "advice": "B."}]
    assert len(known_issues({"known_issues": issues}, {"generation": ["blackwell"]})) == 2


TABLE = OptionTable.from_data(
    {
        "version": "2.0.0",
        "env": ["VLLM_A", "VLLM_B"],
        "flags": {
            "eager": {"kind": "switch", "negatable": True},
            "headless": {"kind": "switch"},
            "size": {"kind": "integer"},
            "parser": {"kind": "text", "known": ["openai"]},
            "j": {"kind": "json", "keys": {"sizes": "list", "backend": "text"}},
        },
    }
)


def test_a_guard_names_only_what_can_be_planned_instead():
    guard = {"refuse": "Eight is too many", "instead": [{"args": {"tensor-parallel-size": 4}}, {"strategy": "x"}]}

    def told(serves):
        with pytest.raises(PlanError) as caught:
            judge({"guards": [guard]}, {}, "chat", serves)
        return str(caught.value)

    assert told(lambda **_keys: True) == "chat: Eight is too many; set args tensor-parallel-size 4, or strategy x"
    assert told(lambda **keys: "strategy" in keys) == "chat: Eight is too many; set strategy x"
    assert told(lambda **_keys: False) == "chat: Eight is too many; take another host"


@pytest.mark.parametrize(
    ("args", "env", "settings", "found"),
    [
        ({"eager": True, "size": 8}, {}, ["eager", "size"], "--eager and --size exclude each other: why"),
        ({"size": 8}, {}, [{"size": 8}], "--size 8 is not for these chips: why"),
        ({"size": 9}, {}, [{"size": 8}], None),
        ({"eager": True}, {}, ["eager", "size"], None),
        ({"eager": False, "size": 8}, {}, ["eager", "size"], None),
        ({"eager": False, "size": 8}, {}, ["no-eager", "size"], "--no-eager and --size exclude each other: why"),
        (
            {"eager": True, "j": {"sizes": [1]}},
            {},
            ["eager", "j.sizes"],
            "--eager and --j.sizes exclude each other: why",
        ),
        ({"eager": True, "j": {"other": [1]}}, {}, ["eager", "j.sizes"], None),
        ({"eager": True, "j": {"sizes": None}}, {}, ["eager", "j.sizes"], None),
        ({"eager": True, "j": {"sizes": False}}, {}, ["eager", "j.sizes"], None),
        ({"eager": True, "j": "text"}, {}, ["eager", "j.sizes"], None),
        (
            {},
            {"VLLM_A": "1", "VLLM_B": "1"},
            {"VLLM_A": "1", "VLLM_B": "1"},
            "VLLM_A 1 and VLLM_B 1 exclude each other: why",
        ),
        ({}, {"VLLM_A": "1", "VLLM_B": "0"}, {"VLLM_A": "1", "VLLM_B": "1"}, None),
        (
            {"size": 8},
            {"VLLM_A": "True"},
            [{"VLLM_A": "true"}, "size"],
            "VLLM_A true and --size exclude each other: why",
        ),
    ],
)
def test_settings_that_exclude_each_other(args, env, settings, found):
    group = {"settings": settings, "because": "why"}
    assert list(exclusions(args, env, [group], TABLE)) == ([found] if found else [])


def test_vllm_stops_at_its_own_unknown_variables_only():
    (found,) = stopping_variables({STOP_AT_VARIABLES: True}, {"OMP_NUM_THREADS": "1", "VLLM_ASCEND_X": "1"}, TABLE)
    assert found.startswith("VLLM_ASCEND_X: ")
    assert not list(stopping_variables({}, {"VLLM_ASCEND_X": "1"}, TABLE))


def test_a_negative_number_is_no_flag():
    (found,) = flags_as_values({"size": "-1", "ratio": ["-0.5", "--grpc"]})
    assert found.startswith("--ratio: found '--grpc'")


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"eager": True}, ["--eager needs --size: why"]),
        ({"eager": True, "size": 8}, []),
        ({"eager": False}, []),
        ({"size": 8}, []),
    ],
)
def test_a_setting_that_needs_another_is_refused_without_it(args, found):
    assert list(exclusions(args, {}, [{"settings": ["eager"], "needs": ["size"], "because": "why"}], TABLE)) == found


@pytest.mark.parametrize(
    ("args", "found"), [({"size": 8}, []), ({"size": 9}, ["--eager needs --size 8: why"]), ({"eager": False}, [])]
)
def test_a_setting_may_need_a_value_of_another(args, found):
    group = {"settings": ["eager"], "needs": [{"size": 8}], "because": "why"}
    assert list(exclusions({"eager": True, **args}, {}, [group], TABLE)) == found


@pytest.mark.parametrize(("size", "problems"), [(8, 0), (9, 1), (None, 0)])
def test_a_number_above_the_setting_that_bounds_it_is_refused(size, problems):
    group = {"settings": ["size"], "at_most": "least", "because": "why"}
    args = {"least": 8, **({"size": size} if size else {})}
    found = list(exclusions(args, {}, [group], TABLE))
    assert found == ["--size is 9, expected at most --least, which is 8: why"] * problems
    key = {"settings": ["j.size"], "at_most": "least", "because": "why"}
    assert len(list(exclusions({"least": 8, "j": {"size": size}}, {}, [key], TABLE))) == problems


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"max-num-seqs": 100, "max-num-batched-tokens": "10"}, "--max-num-seqs is 100, expected at most"),
        ({"max-model-len": "8k", "max-num-batched-tokens": 4096, "enable-chunked-prefill": False}, "is 8k, expected"),
        ({"max-model-len": "8k", "max-num-batched-tokens": 4096}, None),
        ({"speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}, None),
        ({"speculative-config": {"method": "ngram"}}, "needs --speculative-config.num_speculative_tokens"),
        ({"speculative-config": {}}, "--speculative-config needs --speculative-config.method or"),
        ({"spec-method": "ngram"}, "--spec-method needs --spec-tokens or"),
        ({"spec-method": "suffix"}, None),
        ({"speculative-config": {"method": "ngram"}, "spec-tokens": 3}, None),
        ({"speculative-config": {"method": "eagle3", "num_speculative_tokens": 3}, "spec-model": "a/b"}, None),
        (
            {"speculative-config": {"method": "eagle3"}},
            "--speculative-config.method eagle3 needs --speculative-config.m",
        ),
        (
            {"speculative-config": {"prompt_lookup_min": 4, "prompt_lookup_max": 1}},
            "prompt_lookup_min is 4, expected at",
        ),
        ({"kv-transfer-config": {"kv_connector": "NixlConnector"}}, "needs --kv-transfer-config.kv_role"),
        ({"profiler-config": {"profiler": "torch"}}, "needs --profiler-config.torch_profiler_dir"),
    ],
)
def test_relations_of_the_newest_release(args, found):
    problems = [*exclusions(args, {}, load_exclusive(), load_table("0.33.0"))]
    assert any(found in text for text in problems) if found else not problems


def test_older_releases_have_the_directory_of_the_profiler_in_a_variable():
    args, env = {"profiler-config": {"profiler": "torch"}}, {"VLLM_TORCH_PROFILER_DIR": "/srv/traces"}
    assert not [*exclusions(args, env, load_exclusive(), load_table("0.13.0"))]


def test_settings_of_which_vllm_ignores_one_are_a_doubt():
    group = {"settings": ["eager", "size"], "because": "why", "warn": True}
    (found,) = exclusions({"eager": True, "size": 8}, {}, [group], TABLE)
    assert (type(found), found) == (Doubt, "--eager and --size are both set: why")


FOREIGN = Foreign(frozenset({"TZ"}), ("NCCL_",))


def problems(args, env=None):
    return option_problems(args, env or {}, TABLE, FOREIGN)


def test_only_variables_of_vllm_can_be_wrong():
    assert problems({}, {"VLLM_A": "1", "TZ": "UTC", "NCCL_X": "1", "MY_OWN": "1"}) == []
    (problem,) = problems({}, {"VLLM_C": "1"})
    assert problem == "VLLM_C: vLLM 2.0.0 does not read this variable; no variable of this release has a similar name"


@pytest.mark.parametrize(
    ("args", "env", "kind", "strict", "lenient"),
    [
        ({"sise": 1}, {}, Unknown, 1, 0),
        ({"j": {"siszes": [1]}}, {}, Unknown, 1, 0),
        ({}, {"VLLM_AA": "1"}, Unknown, 1, 0),
        # What is wrong in any release is wrong for a nightly too.
        ({"size": "big"}, {}, str, 1, 1),
        ({"headless": False}, {}, str, 1, 1),
        ({"j": {"sizes": 1}}, {}, str, 1, 1),
        ({"parser": "opnai"}, {}, Doubt, 0, 0),
    ],
)
def test_what_is_wrong_for_certain(args, env, kind, strict, lenient):
    found = problems(args, env)
    assert [type(problem) for problem in found] == [kind]
    assert (len(errors_of(found, True)), len(errors_of(found, False))) == (strict, lenient)
    assert len(doubts_of(found)) == (kind is not str)


def test_a_placeholder_of_a_shell_is_found_in_variables_and_arguments():
    assert list(placeholders({"host": "0.0.0.0", "port": 8000}, {"HOME": "/root"})) == []
    assert list(placeholders({"master-addr": "$HEAD_IP"}, {"NAME": "${NAME}"})) == [
        "env.NAME: found the placeholder ${NAME}, expected a value; set env.NAME of the instance",
        "args.master-addr: found the placeholder $HEAD_IP, expected a value; set args.master-addr of the instance",
    ]
