# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of each bundled workload is one that `vllm bench serve` of each release accepts."""

from __future__ import annotations

import json
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.bench.measurement import (
    BY_MODULE,
    COMMAND,
    Target,
    bench_argv,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import Step, load_workloads

from tests.parity.real import RELEASES

# Prints for each command what the benchmark gets from its parser.
READ = f"""
import json, sys
import vllm.benchmarks.serve
found = []
def keep(arguments):
    # Some of the others are no JSON: a dictionary whose keys are tuples.
    found.append({{key: value for key, value in vars(arguments).items() if isinstance(value, (str, int, float))}})
vllm.benchmarks.serve.main = keep
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    {BY_MODULE}
print(json.dumps(found))
"""
WORKLOADS = load_workloads({})
OPTIONS = ("--tokenizer-mode", "slow", "--trust-remote-code", "--insecure")
TARGET = Target("https://[::1]:1", "m", "/t", ("vllm", *COMMAND), OPTIONS)


@pytest.mark.parametrize("release", RELEASES)
def test_the_benchmark_reads_what_the_workloads_mean(real_parsers, release):
    parser = real_parsers[release]
    steps = [Step(workload, 8, 32) for workload in WORKLOADS.values()]
    commands = [bench_argv(TARGET, step.measurement(7), "/results", "r.json")[len(TARGET.command) :] for step in steps]
    done = subprocess.run(
        [parser.python, "-c", READ, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=False,
        env=parser.environ,
        cwd=parser.directory,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = dict(zip(WORKLOADS, json.loads(done.stdout.splitlines()[-1])))
    for read in found.values():
        assert (read["num_prompts"], read["max_concurrency"], read["seed"], read["ignore_eos"]) == (32, 8, 7, True)
        assert (read["model"], read["tokenizer"], read["base_url"]) == ("m", "/t", "https://[::1]:1")
        assert read["insecure"] and read["trust_remote_code"] and read["tokenizer_mode"] == "slow"
    assert (found["chat"]["random_input_len"], found["chat"]["random_output_len"]) == (1024, 512)
    agent = {key: value for key, value in found["agent"].items() if key.startswith("prefix_repetition_")}
    assert agent == {
        "prefix_repetition_prefix_len": 3072,
        "prefix_repetition_suffix_len": 1024,
        "prefix_repetition_num_prefixes": 8,
        "prefix_repetition_output_len": 256,
    }
    assert (found["burst"]["request_rate"], found["burst"]["burstiness"]) == (0.5, 0.2)
