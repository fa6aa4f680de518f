# SPDX-License-Identifier: GPL-3.0-or-later
"""Made-up evidence for tests."""

from __future__ import annotations

from typing import Any

NAME = "openai/gpt-oss-20b/h200x1/0.25.1-2026-11-23"


def document(**change: Any) -> dict[str, Any]:
    """Return a complete document of evidence; its place is NAME unless ``change`` says otherwise."""
    result = {
        "workload": "chat",
        "input_tokens": 1024,
        "output_tokens": 512,
        "concurrency": 64,
        "repeats": 3,
        "output_tokens_per_second": {"median": 8950, "lowest": 8891, "highest": 9029},
        "ttft_ms": {"median": 560, "lowest": 542, "highest": 577},
    }
    return {
        "status": "measured",
        "source": "baremetal.inference 0.7.0",
        "date": "2026-11-23",
        "model": "openai/gpt-oss-20b",
        "weights": "random",
        "release": "0.25.1",
        "accelerator": "h200",
        "count": 1,
        "preset": "balanced",
        "start_seconds": 47.1,
        "results": [result],
        **change,
    }
