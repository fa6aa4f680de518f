# SPDX-License-Identifier: GPL-3.0-or-later
"""Read vLLM's metrics, in Prometheus' text format."""

from __future__ import annotations

import math
import re
from typing import Collection, Iterator

from ..common.foreign_numbers import read_finite

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
PROMPT_TOKENS, GENERATION_TOKENS = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
SUCCESS, KV_CACHE = "vllm:request_success_total", "vllm:kv_cache_usage_perc"
# All work of an engine changes one of these; no client can change one without it.
WORK = (GENERATION_TOKENS, PROMPT_TOKENS, SUCCESS, KV_CACHE, "vllm:iteration_tokens_total_count")
_LINES = re.compile(r"^vllm:[^\n]*", re.MULTILINE)
_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{.*\})?\s+(?P<value>[^\s{}]+)(?:\s+-?\d+)?\s*\Z", re.ASCII)


def samples(text: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each sample of some metrics, the value as it stands there."""
    # Most lines are comments or other metrics. One after the other: a list of all lines may be 40 times as large.
    for line in _LINES.finditer(text):
        match = _LINE.match(line[0])
        if match and match["name"] in names:
            yield match["name"], match["value"]


def sums(text: str, names: Collection[str]) -> dict[str, float]:
    """Return metrics summed over engines and models, without those that are missing or no finite numbers."""
    found: dict[str, float] = {}
    for name, value in samples(text, names):
        number = read_finite(value)
        if number is not None:
            found[name] = found.get(name, 0.0) + number
    # Finite numbers may have an infinite sum.
    return {name: number for name, number in found.items() if math.isfinite(number)}
