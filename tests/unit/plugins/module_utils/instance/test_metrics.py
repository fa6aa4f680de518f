# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import tracemalloc

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.metrics import (
    RUNNING,
    WAITING,
    samples,
    sums,
)

TEXT = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a} b"} 2.0
vllm:num_requests_running{engine="1",model_name="a"} 3.0
vllm:num_requests_waiting 1 1700000000000
vllm:num_requests_waiting_by_reason{reason="x"} 7
python_info 1
"""


def test_engines_and_models_are_summed():
    assert sums(TEXT, (RUNNING, WAITING)) == {RUNNING: 5.0, WAITING: 1.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "x", "1e999", "0x10", "1_0"])
def test_what_is_no_finite_number_is_missing_and_can_be_seen(value):
    text = f"{RUNNING} {value}\n"
    assert sums(text, (RUNNING,)) == {}
    assert list(samples(text, (RUNNING,))) == [(RUNNING, value)]


def test_other_text_holds_no_metric():
    assert sums("<html>vllm:num_requests_running 1</html>\nvllm:num_requests_running\n", (RUNNING,)) == {}


def test_a_page_of_short_lines_takes_no_memory_of_others():
    """An engine that is taken over says what it likes, and the gateway's agent reads many of them."""
    page = "ab\n" * 200_000
    tracemalloc.start()
    try:
        assert sums(page, (RUNNING,)) == {}
        assert tracemalloc.get_traced_memory()[1] < len(page)
    finally:
        tracemalloc.stop()
