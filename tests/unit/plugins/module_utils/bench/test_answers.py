# SPDX-License-Identifier: GPL-3.0-or-later
"""A real result of an H200, and answers of an instance."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.answers import (
    STARTED,
    explain_output,
    finished_requests,
    model_length,
    other_requests,
    read_result,
    start_seconds,
)
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import BenchError, Measurement

from tests.fakes.wheelhouse import ROOT

RECORDED = ROOT / "tests/fixtures/h200"
REAL = (RECORDED / "vllm-bench-serve_c1.json").read_text()
THREE = Measurement("random", 1024, 512, 3, 1, 7)
METRICS = """
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 1.2e+01
vllm:request_success_created{engine="0",finished_reason="length",model_name="m"} 1.7e+09
vllm:num_requests_running{engine="0"} 0.0
"""


def test_the_real_result_of_an_h200():
    found = read_result(REAL, THREE)
    assert found["output_throughput"] == pytest.approx(324.1, abs=0.01) and found == json.loads(REAL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"failed": 2, "completed": 1}, "of 3 requests 1 were answered and 2 failed"),
        ({"completed": 2}, "of 3 requests 2 were answered and 0 failed"),
        ({"output_throughput": None}, "lacks output_throughput"),
        ({"duration": 0}, "has no output tokens"),
        ({"total_output_tokens": 0}, "has no output tokens"),
    ],
)
def test_a_result_without_meaning_is_refused(change, message):
    with pytest.raises(BenchError) as caught:
        read_result(json.dumps({**json.loads(REAL), **change}), THREE)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_anything_that_is_not_a_result_is_refused(text):
    with pytest.raises(BenchError, match="the result of vllm bench serve is"):
        read_result(text, THREE)


def test_the_recorded_output_names_the_begin():
    lines = (RECORDED / "vllm-bench-serve_c64.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith(STARTED)]


def test_the_errors_among_the_last_lines_explain():
    lines = ["INFO x", "Traceback (most recent call last):", "  File y", "ValueError: Initial test run failed", "bye"]
    assert explain_output(lines) == "ValueError: Initial test run failed"
    assert explain_output(["vllm bench: error: unrecognized arguments: --x"]).startswith("vllm bench: error:")
    assert explain_output(["one", "", "two"]) == "one; two" and explain_output([]) == "it printed nothing"


def test_the_longest_sequence_of_the_model():
    body = json.dumps({"data": [{"id": "n", "max_model_len": 1}, {"id": "m", "max_model_len": 512}]}).encode()
    assert model_length(body, "m") == 512 and model_length(body, "x") is None
    assert model_length(b"[]", "m") is None and model_length(b"", "m") is None


def test_requests_of_others_are_counted():
    assert finished_requests(METRICS) == 15 and finished_requests("vllm:x 1") is None
    # The benchmark itself asks once before it begins.
    assert other_requests(15, 19, {"completed": 3}) == 0
    assert other_requests(15, 21, {"completed": 3}) == 2
    assert other_requests(None, 21, {"completed": 3}) is None


def test_the_seconds_of_a_start():
    text = "InactiveExitTimestampMonotonic=1000000\nActiveEnterTimestampMonotonic=48100000\n"
    assert start_seconds(text) == 47.1
    assert start_seconds(text.replace("48100000", "0")) is None and start_seconds("") is None
