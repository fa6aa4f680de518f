# SPDX-License-Identifier: GPL-3.0-or-later
"""A client with a key steers the engine, or has it fetch from other hosts, by fields of its body."""

from __future__ import annotations

import http.client
import json
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import routed_host

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HANGS, HAPROXY, KEY, gateway, until

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
FIELDS = {
    "priority": -100, "request_id": "___prefill_addr_10.0.0.1:1", "kv_transfer_params": {"remote_host": "10.6.6.6"},
    "ec_transfer_params": {"x": {"peer_host": "10.6.6.6"}}, "vllm_xargs": {"kv_cache_report_mode": "full", "a": "b"},
}  # fmt: skip
PATHS = ["/v1/embeddings", "/v1/rerank", "/v1/score", "/pooling", "/classify", "/v1/chat/completions", "/v1/responses"]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    directory = tmp_path_factory.mktemp("e")
    options = {"paths": [{"path": path} for path in PATHS]}
    with counted_engine(directory / "run") as engine, gateway(directory, [engine.port], options=options) as found:
        until(lambda: found.state("gw--chat-1") == "UP")
        found.engine = engine
        yield found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["plain", "escape"])
def test_no_field_of_a_client_steers_an_engine(one, path, form):
    text = json.dumps({"model": "m", "input": "word", "max_tokens": 1, **FIELDS})
    if form == "escape":
        text = text.replace("priority", "\\u0070riority").replace("kv_tr", "k\\u0076_tr")
    assert one.ask("POST", path, KEY, text.encode())[0] == 200
    got = one.engine.requests[-1][1]
    assert got == {"model": "m", "input": "word", "max_tokens": 1, "vllm_xargs": {"a": "b"}}


def test_no_client_gives_its_picture_the_place_of_one_of_others_in_the_caches(one):
    """vLLM takes the name of a picture for its key, and everybody knows the key of a picture that others send."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{**picture, "uuid": "0" * 64}]}]}
    assert one.ask("POST", "/v1/chat/completions", KEY, json.dumps(body).encode())[0] == 200
    assert one.engine.requests[-1][1]["messages"] == [{"role": "user", "content": [picture]}]


def test_nor_does_one_behind_a_router(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFILL_HOSTS", "10.0.0.9")
    with counted_engine(tmp_path / "run", wrap=routed_host.Routed) as engine:
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=HANGS)
        place = {"do_remote_prefill": True, "remote_host": "10.0.0.9"}
        body = {"model": "m", "messages": "word", "max_tokens": 1, **FIELDS, "kv_transfer_params": place}
        connection.request("POST", "/routed/v1/chat/completions", json.dumps(body))
        assert connection.getresponse().status == 200
        _path, got, headers = engine.requests[-1]
        # The router's own word stays.
        assert got["kv_transfer_params"] == place and headers[b"x-vllm-priority"] == b"0"
        assert not {"priority", "request_id", "ec_transfer_params"} & {*got}
        connection.close()
