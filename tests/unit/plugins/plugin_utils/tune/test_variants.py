# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.variants import (
    MOST,
    TuneError,
    changed_instances,
    check_instance,
    check_plans,
    failure_of,
    parse_variants,
)

MARLIN = {"marlin": {"args": {"moe-backend": "marlin"}}}


def test_the_instance_as_it_is_comes_first():
    assert parse_variants(MARLIN, None) == {"current": {}, **MARLIN}


def test_the_lists_of_a_matrix_are_multiplied_out():
    found = parse_variants(
        {}, {"args": {"max-num-seqs": [64, 128], "moe-backend": [None, "marlin"]}, "preset": ["latency"]}
    )
    assert list(found) == [
        "current",
        "max-num-seqs-64-moe-backend-none-preset-latency",
        "max-num-seqs-64-moe-backend-marlin-preset-latency",
        "max-num-seqs-128-moe-backend-none-preset-latency",
        "max-num-seqs-128-moe-backend-marlin-preset-latency",
    ]
    assert found["max-num-seqs-64-moe-backend-none-preset-latency"] == {
        "args": {"max-num-seqs": 64, "moe-backend": None},
        "preset": "latency",
    }


@pytest.mark.parametrize(
    ("variants", "matrix", "message"),
    [
        (None, None, "tune_variants and tune_matrix are empty: name what to compare"),
        ([], [], "tune_variants and tune_matrix are empty"),
        ("marlin", None, "tune_variants: found 'marlin', expected a mapping"),
        (
            {"current": {"args": {"a": 1}}},
            None,
            "tune_variants.current: this name is reserved for the unchanged instance",
        ),
        ({"a b": {"args": {"a": 1}}}, None, "tune_variants.a b: found the name 'a b', expected small letters"),
        ({"a": {}}, None, "tune_variants.a: found nothing to change, expected one of args"),
        ({"a": {"arg": {"a": 1}}}, None, "tune_variants.a: unknown key 'arg'; nearest: 'args'"),
        ({"a": {"args": ["--x"]}}, None, "tune_variants.a.args: found ['--x'], expected a mapping"),
        ({"a": {"preset": 5}}, None, "tune_variants.a.preset: found 5, expected a text"),
        (None, {"args": {"a": 5}}, "tune_matrix.args.a: found 5, expected a list of values"),
        (None, {"arg": {"a": [5]}}, "tune_matrix: unknown key 'arg'; nearest: 'args'"),
        (None, {"args": {"a": [5, 5]}}, "tune_matrix: two combinations are called a-5"),
        ({"a-5": {"args": {"a": 1}}}, {"args": {"a": [5]}}, "tune_matrix: its variant a-5 is in tune_variants too"),
        (None, {"args": {"a": list(range(MOST))}}, f"found {MOST + 1} variants, expected at most {MOST}"),
    ],
)
def test_wrong_variants(variants, matrix, message):
    with pytest.raises(TuneError) as raised:
        parse_variants(variants, matrix)
    assert message in str(raised.value)


def test_a_variant_lies_on_top_of_the_instance():
    instances = {"chat": {"recipe": "a/b", "args": {"x": 1, "y": 2}}, "other": {"recipe": "c/d"}}
    found = changed_instances(instances, "chat", {"args": {"y": None, "z": 3}, "env": {"A": "1"}, "preset": "latency"})
    assert found == {
        "chat": {"recipe": "a/b", "args": {"x": 1, "y": None, "z": 3}, "env": {"A": "1"}, "preset": "latency"},
        "other": {"recipe": "c/d"},
    }
    assert instances["chat"] == {"recipe": "a/b", "args": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "tune_instance is missing"), ("chatt", "nearest: 'chat'"), ("wide", "spans the hosts a, b")],
)
def test_an_instance_that_cannot_be_tuned(name, message):
    with pytest.raises(TuneError, match=message):
        check_instance({"chat": {"recipe": "a/b"}, "wide": {"recipe": "a/b", "nodes": ["a", "b"]}}, name)


def test_two_variants_with_the_same_plan():
    plan = {"argv": ["vllm"], "env": {"A": "1"}}
    check_plans({"current": plan, "a": {**plan, "env": {}}})
    with pytest.raises(TuneError, match="a makes the same plan as current; check that it changes something"):
        check_plans({"current": plan, "a": dict(plan)})


def test_the_message_of_a_failed_task():
    assert failure_of({"msg": "a\n  b"}) == "a b"
    loop = {"msg": "One or more items failed", "results": [{"failed": True, "msg": "x"}, {"msg": "fine"}]}
    assert failure_of(loop) == "x"
    assert failure_of("text") == "text" and failure_of({}) == "no message"
