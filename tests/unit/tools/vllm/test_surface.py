# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes and metrics out of a source tree."""

from __future__ import annotations

import pytest

from tools.vllm.surface import BUILT_IN, has_metric, metrics, routes

FILES = {
    "entrypoints/api.py": """
@router.post("/v1/chat/completions", dependencies=[1])
async def chat(): ...
@router.get("/v1/models")
def models(): ...
@app.websocket("/v1/realtime")
def realtime(): ...
app.add_api_route("/ping", ping, methods=["GET", "POST"])
app.mount("/metrics", x)
router.get(path)
cache.get("key")
""",
    "v1/metrics/loggers.py": """
gauge(name="vllm:num_requests_running", documentation="Requests; see vllm:num_requests_waiting.")
counter("vllm:generation_tokens")
""",
    "other.py": 'IMAGE = "vllm:latest image"\n',
}


@pytest.fixture
def package(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_way_of_declaring_a_route_is_read(package):
    found = ["GET /metrics", "GET /ping", "GET /v1/models", "GET /v1/realtime", "POST /ping"]
    assert routes(package) == sorted([*BUILT_IN, *found, "POST /v1/chat/completions"])


def test_metrics_are_names_and_no_sentences(package):
    assert metrics(package) == ["vllm:generation_tokens", "vllm:num_requests_running"]


def test_a_series_has_the_suffix_of_the_client():
    names = {"vllm:generation_tokens", "vllm:num_requests_running"}
    assert has_metric("vllm:generation_tokens_total", names) and has_metric("vllm:num_requests_running", names)
    assert not has_metric("vllm:prompt_tokens_total", names)
