# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of vllm-router, for an instance with prefill and decode."""

from __future__ import annotations

from typing import Any, Mapping

# Seconds between two checks of the hosts. One that fails leaves a host out, until one succeeds: prompts are computed
# elsewhere meanwhile, and a busy vLLM has some seconds to answer.
INTERVAL, PATIENCE = 2, 10


def arguments_of(group: Mapping[str, Any]) -> list[str]:
    """Return the command line of the router."""
    router = group["router"]
    prefill = [word for each in group["prefill"] for word in ("--prefill", f"http://{each}")]
    return [
        "--vllm-pd-disaggregation", *prefill, "--decode", router["decode"], "--policy", "round_robin",
        "--host", router["host"], "--port", str(router["port"]),
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(router["metrics"]),
        "--health-check-interval-secs", str(INTERVAL), "--health-check-timeout-secs", str(PATIENCE),
        "--health-failure-threshold", "1", "--health-success-threshold", "1",
        "--worker-startup-check-interval", "2",
    ]  # fmt: skip
