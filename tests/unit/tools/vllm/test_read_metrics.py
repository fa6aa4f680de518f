# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOOL = Path(__file__).resolve().parents[4] / "tools/vllm/read_metrics.py"
SPEC = importlib.util.spec_from_file_location("read_metrics", TOOL)
read_metrics = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(read_metrics)

# The ways in which releases write their metrics.
LOGGERS = """
import prometheus_client
NAME = "vllm:tool_calls_total"

class Logger:
    def __init__(self, labels):
        self.running = self._gauge_cls(name="vllm:num_requests_running", documentation="vllm:not_this_one")
        self.tokens = prometheus_client.Counter("vllm:generation_tokens", "vllm:nor_this")
        self.time = self._histogram_cls(name="vllm:time_to_first_token_seconds", buckets=[1])
        self.calls = Counter(name=NAME)
        self.other = Gauge(name="python_info")

    def of_a_loop(self):
        specs = [("vllm:spec_decode_num_drafts", "Drafts."), ("vllm:spec_decode_num_draft_tokens", "Tokens.")]
        return {name: self._counter_cls(name=name, documentation=text) for name, text in specs}

    def told(self):
        print(("vllm:only_in_a_text", 1))
"""


@pytest.fixture
def release(tmp_path):
    (tmp_path / "vllm/v1").mkdir(parents=True)
    (tmp_path / "vllm/engine").mkdir()
    (tmp_path / "vllm/v1/loggers.py").write_text(LOGGERS)
    (tmp_path / "vllm/engine/metrics.py").write_text('Gauge(name="vllm:gpu_cache_usage_perc")\n')
    return tmp_path


def test_every_way_of_making_a_metric_is_read(release):
    assert read_metrics.metrics(release) == {
        "vllm:generation_tokens": "counter",
        "vllm:num_requests_running": "gauge",
        "vllm:spec_decode_num_draft_tokens": "counter",
        "vllm:spec_decode_num_drafts": "counter",
        "vllm:time_to_first_token_seconds": "histogram",
        "vllm:tool_calls_total": "counter",
    }


def test_the_table_is_yaml(release):
    done = subprocess.run([sys.executable, TOOL, "9.9.9", release], capture_output=True, text=True, check=True)
    table = yaml.safe_load(done.stdout)
    assert table["version"] == "9.9.9" and table["metrics"]["vllm:num_requests_running"] == "gauge"


def test_a_directory_without_a_release_is_refused(tmp_path):
    (tmp_path / "vllm").mkdir()
    done = subprocess.run([sys.executable, TOOL, "9.9.9", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "expected an unpacked release" in done.stderr
