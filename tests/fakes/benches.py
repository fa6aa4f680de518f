# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of a benchmark, made from the recorded result of an H200."""

from __future__ import annotations

import json

from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import Step, Workload

from tests.fakes.bench_host import RESULT

CHAT = Workload("chat", "random", 1024, 512)
PLAN = {
    "instance": "chat",
    "model": "openai/gpt-oss-20b",
    "revision": "6cee5e81ee83917806bbde320786a8fb61efebee",
    "release": "site-0.25.1",
    "vllm_version": "0.25.1",
    "accelerator": "h200",
    "stack": "cuda",
    "strategy": "single_node_tp",
    "chips": [0],
    "preset": "balanced",
    "args": {"max-num-seqs": 512},
    "argv": ["vllm", "serve", "/srv/models/m"],
    "env": {"B": "2", "A": "1"},
}
INFO = {"max_model_len": 131072, "running": 0, "waiting": 0, "start_seconds": 47.1, "power_limit_watts": 700.0}


def taken(speed=324.1, ttft=25.0, itl=3.7, joules=None):
    """Return the result of instance_bench with these figures."""
    result = {**json.loads(RESULT.read_text()), "output_throughput": speed, "median_ttft_ms": ttft, "p99_itl_ms": itl}
    return {"result": result, "power": {"joules": joules, "watts": 400.0} if joules else {}, "other_requests": 0}


def record(workload=CHAT, concurrency=1, repeat=1, **figures):
    """Return a record as Records.record makes it."""
    step = Step(workload, concurrency, 8)
    return {
        "schema": 1,
        "plan": "0" * 64,
        "workload": {"name": workload.name, "input_tokens": 1024, "output_tokens": 512},
        "concurrency": concurrency,
        "repeat": repeat,
        "measurement": {"requests": step.requests},
        **taken(**figures),
    }
