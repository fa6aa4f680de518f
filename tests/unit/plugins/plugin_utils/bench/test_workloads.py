# SPDX-License-Identifier: GPL-3.0-or-later
"""The workloads of the catalogue and of a site, and how they fit an instance."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import measurement_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import (
    Amount,
    Step,
    Workload,
    WorkloadError,
    choose_workloads,
    definition,
    fit,
    load_workloads,
    read_concurrency,
)

BUNDLED = load_workloads({})
OWN = {"dataset": "random", "input_tokens": 100, "output_tokens": 10}
AGENT = BUNDLED["agent"]


def fitted(names=("chat", "long-prompt"), steps=(1, 64), longest=131072, sequences=None, named=False, shorten=False):
    return fit([BUNDLED[name] for name in names], steps, Amount(), longest, sequences, named, shorten)


def test_the_bundled_workloads_make_valid_measurements():
    assert list(BUNDLED) == ["chat", "long-prompt", "agent", "burst"]
    for workload in BUNDLED.values():
        for step in (1, 3, 64):
            one = Step(workload, step, 8)
            for measurement in (one.measurement(7), one.warm_up(8)):
                assert measurement_of(measurement.__dict__) == measurement


def test_a_site_adds_and_replaces_workloads():
    found = load_workloads({"ours": OWN, "chat": {**OWN, "output_tokens": 20}})
    assert found["ours"].input_tokens == 100 and found["chat"].output_tokens == 20 and "burst" in found


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ([], "bench_workload_definitions: found a list, expected a mapping"),
        ({"a": 3}, "bench_workload_definitions: a: found a number, expected a mapping"),
        ({"a/b": OWN}, "a/b: a name has letters, digits, - and _ only"),
        ({"a": {**OWN, "input_token": 3}}, "unknown key 'input_token'; nearest: 'input_tokens'"),
        ({"a": {"dataset": "random", "input_tokens": 3}}, "a: output_tokens is missing"),
        ({"a": {**OWN, "dataset": "sharegpt"}}, "dataset: found 'sharegpt'; known: prefix_repetition, random"),
        (
            {"a": {**OWN, "input_tokens": "100"}},
            "input_tokens: found the text '100', expected a whole number from 1 up",
        ),
        ({"a": {**OWN, "input_tokens": True}}, "input_tokens: found true"),
        ({"a": {**OWN, "burstiness": 0}}, "burstiness: found 0, expected a number above 0"),
        ({"a": {**OWN, "burstiness": float("nan")}}, "burstiness: found nan, expected a number above 0"),
        ({"a": {**OWN, "burstiness": 0.2}}, "a: burstiness needs request_rate_per_stream"),
        ({"a": {**OWN, "prefix_tokens": 50}}, "a: prefix_tokens is only for dataset prefix_repetition, found random"),
        ({"a": {**OWN, "requests_per_prefix": 2}}, "a: requests_per_prefix is only for dataset prefix_repetition"),
        ({"a": {**OWN, "dataset": "prefix_repetition", "prefix_tokens": 100}}, "found 100, expected 1 to 99"),
        ({"a": {**OWN, "dataset": "prefix_repetition", "prefix_tokens": 50}}, "requests_per_prefix is missing"),
    ],
)
def test_a_bad_definition_is_refused(own, message):
    with pytest.raises(WorkloadError) as caught:
        load_workloads(own)
    assert message in str(caught.value)


def test_workloads_are_chosen_by_name():
    assert choose_workloads(BUNDLED, []) == list(BUNDLED.values())
    assert choose_workloads(BUNDLED, ["agent", " agent"]) == [AGENT]
    with pytest.raises(WorkloadError, match="bench_workloads: 'chta' is not a workload; nearest: 'chat'"):
        choose_workloads(BUNDLED, ["chta"])


def test_the_usual_steps_depend_on_the_stack():
    assert read_concurrency([], "cuda") == [1, 8, 64, 256] and read_concurrency([], "cpu") == [1, 4]
    assert read_concurrency(["64", " 8", 8], "cuda") == [8, 64]


@pytest.mark.parametrize("value", ["0", "many", "-1", "1.5", ""])
def test_a_bad_step_is_refused(value):
    with pytest.raises(WorkloadError, match="bench_concurrency: found"):
        read_concurrency([value], "cuda")


def test_each_workload_is_measured_at_each_step():
    found = fitted()
    names = ["chat-c1", "chat-c64", "long-prompt-c1", "long-prompt-c64"]
    assert [step.name for step in found.steps] == names and not found.notes
    assert [step.requests for step in found.steps] == [8, 256, 8, 256]


def test_a_workload_that_exactly_fits_is_measured():
    assert len(fitted(longest=9216).steps) == 4 and len(fitted(longest=9215).steps) == 2


def test_what_does_not_fit_is_left_out_with_a_note():
    found = fitted(longest=4096, sequences=32)
    assert [step.name for step in found.steps] == ["chat-c1"]
    assert found.notes == [
        "concurrency 64: left out, because max-num-seqs of the instance is 32",
        "workload long-prompt: left out, because it needs 9216 tokens, and max-model-len of the instance is 4096 "
        "(bench_shorten=true shortens it)",
    ]


def test_what_the_user_named_and_does_not_fit_is_an_error():
    with pytest.raises(WorkloadError, match="long-prompt needs 9216 tokens, and max-model-len of the instance is 4096"):
        fitted(longest=4096, named=True)


def test_a_workload_is_shortened_in_proportion():
    found = fitted(names=("agent", "long-prompt"), longest=2176, named=True, shorten=True)
    agent, long = found.steps[0].workload, found.steps[2].workload
    assert (agent.input_tokens, agent.prefix_tokens, agent.output_tokens) == (2048, 1536, 128)
    assert long.tokens <= 2176 and long.input_tokens == 1934
    assert "workload agent: shortened to 2048 tokens in and 128 out" in found.notes[0]


def test_too_little_room_is_an_error():
    with pytest.raises(WorkloadError, match="max-model-len 5 leaves no room"):
        fitted(names=("long-prompt",), longest=5, shorten=True)
    with pytest.raises(WorkloadError, match="nothing is left to measure: concurrency 1, 64: left out"):
        fitted(sequences=0)


def test_requests_with_shared_prefixes_are_whole_groups():
    steps = fit([AGENT], [1, 3], Amount(per_stream=3, at_least=1), None, None, True, False).steps
    assert [(step.requests, step.measurement(1).prefixes) for step in steps] == [(4, 1), (12, 3)]
    assert (steps[1].warm_up(1).requests, steps[1].warm_up(1).prefixes) == (4, 1)


def test_bursts_follow_the_concurrency():
    measurement = Step(BUNDLED["burst"], 64, 256).measurement(1)
    assert (measurement.request_rate, measurement.burstiness) == (4.0, 0.2)
    assert Step(BUNDLED["chat"], 64, 256).measurement(1).request_rate == 0


def test_a_number_of_requests_at_a_fixed_rate():
    """``vllm bench serve --num-prompts 200 --request-rate 1`` of vllm-ascend's guides (docs/operate/bench.md)."""
    work = Workload("guide", "random", 200, 200, request_rate_per_stream=0.005)
    found = fit([work], [200], Amount(1, 8), 4096, None, True, False).steps[0].measurement(7)
    assert (found.requests, found.concurrency, found.request_rate, found.burstiness) == (200, 200, 1, 1)


def test_a_title_is_no_part_of_what_is_measured():
    assert definition(Workload(title="A", **{"name": "a", **OWN})) == definition(
        Workload(title="B", **{"name": "a", **OWN})
    )
