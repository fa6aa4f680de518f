# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.acceptance.bench import (
    busy,
    short_figures,
    short_step,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import WorkloadError


def size(step):
    return step.concurrency, step.requests, step.workload.input_tokens, step.workload.output_tokens


@pytest.mark.parametrize(
    ("stack", "longest", "expected"),
    [
        ("cuda", 131072, (16, 64, 1024, 256)),
        ("rocm", None, (16, 64, 1024, 256)),
        ("cann", 640, (16, 64, 512, 128)),
        ("cpu", 256, (2, 8, 64, 16)),
        ("cpu", 40, (2, 8, 32, 8)),
    ],
)
def test_the_size_fits_the_hardware_and_the_longest_sequence(stack, longest, expected):
    assert size(short_step(stack, longest)) == expected


def test_a_sequence_of_two_tokens_has_no_room():
    with pytest.raises(WorkloadError, match="workload short: max-model-len 2 leaves no room for a prompt and an"):
        short_step("cuda", 2)


def test_an_instance_that_serves_others_is_busy():
    assert busy({"running": 0, "waiting": 0}) == ""
    assert busy({"running": 3, "waiting": 1}).startswith("it has 3 running and 1 waiting requests; drain the host")


def test_the_figures_are_those_of_the_result():
    result = {"output_throughput": 2345.678, "median_ttft_ms": 210.123, "median_tpot_ms": 6.1, "p99_itl_ms": 9}
    found = short_figures(short_step("cuda", None).measurement(7), result)
    assert found == {
        "concurrency": 16, "requests": 64, "input_tokens": 1024, "output_tokens": 256,
        "output_tokens_per_second": 2345.7, "ttft_ms": 210.12, "tpot_ms": 6.1, "itl_p99_ms": 9.0,
    }  # fmt: skip
